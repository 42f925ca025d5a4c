//! Which engines there are, and how their programs are built.
//!
//! Rust engines are packages of this workspace and are built by cargo, started in this workspace's
//! directory, where it finds the flags (`.cargo/config.toml`). Go engines are the directories of
//! `go/cmd`. An engine that cannot be built is left out, and the page says so.

mod about;

pub use about::{EngineAbout, Safety};

use lithe_bench::{Result, wrong};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs in Rust: engine and package. LitheDB first; then the order of the columns.
const RUST_ENGINES: &[(&str, &str)] = &[
    ("lithedb", "peer-lithedb"),
    ("lithedb-lsm", "peer-lithedb"),
    ("lithedb-history", "peer-lithedb"),
    ("rocksdb", "peer-rocksdb"),
    ("lmdb", "peer-lmdb"),
    ("redb", "peer-redb"),
    ("fjall", "peer-fjall"),
    ("canopydb", "peer-canopydb"),
    ("sled", "peer-sled"),
    ("nebari", "peer-nebari"),
    ("sqlite", "peer-sqlite"),
    ("sqlite-rowid", "peer-sqlite"),
    ("lmdb-writemap", "peer-lmdb"),
    ("bf-tree", "peer-bf-tree"),
];
/// For Go, the instruction sets nearest to "native" (AVX2 and what came before it).
const GO_PROCESSOR: &str = "v3";
/// For the C in Go programs; the same as in `.cargo/config.toml`.
const GO_C_FLAGS: &str = "-O3 -march=native";

/// An engine whose program is there.
#[derive(Clone, Debug)]
pub struct Built {
    /// What it says about itself.
    pub about: EngineAbout,
    /// Its program.
    pub program: PathBuf,
}

/// What could be built, and what could not, with the reason.
#[derive(Clone, Debug, Default)]
pub struct Builds {
    /// In the order of the columns.
    pub built: Vec<Built>,
    /// Engine and reason.
    pub failed: Vec<(String, String)>,
}

/// The directory of this workspace.
fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("this package lies in the workspace").to_owned()
}

fn go_dir() -> PathBuf {
    workspace().join("go")
}

/// The engines in Go, by name.
fn go_engines() -> Vec<String> {
    let entries = fs::read_dir(go_dir().join("cmd")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Builds the engines called `wanted`, or all if that is empty.
///
/// # Errors
/// If one is wanted that does not exist, or none could be built.
pub fn build(wanted: &[String]) -> Result<Builds> {
    let go = go_engines();
    let known = |name: &str| {
        RUST_ENGINES.iter().any(|(engine, _)| *engine == name) || go.iter().any(|one| one == name)
    };
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let rust = RUST_ENGINES.iter().map(|(engine, _)| *engine);
        let all: Vec<&str> = rust.chain(go.iter().map(String::as_str)).collect();
        return wrong(format!("there is no engine `{unknown}`: there are {}", all.join(", ")));
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    let mut builds = Builds::default();
    for (engine, package) in RUST_ENGINES.iter().filter(|(engine, _)| is_wanted(engine)) {
        eprintln!("compare: building {engine}");
        builds.add(engine, build_rust(engine, package));
    }
    for engine in go.iter().filter(|engine| is_wanted(engine)) {
        eprintln!("compare: building {engine}");
        builds.add(engine, build_go(engine));
    }
    if builds.built.is_empty() {
        return wrong("no engine could be built");
    }
    Ok(builds)
}

impl Builds {
    fn add(&mut self, engine: &str, program: Result<PathBuf>) {
        match program.and_then(|program| Ok(Built { about: ask_about(&program)?, program })) {
            Ok(built) => self.built.push(built),
            Err(error) => {
                eprintln!("compare: {engine}: {error}");
                self.failed.push((engine.into(), error.to_string()));
            }
        }
    }
}

fn build_rust(engine: &str, package: &str) -> Result<PathBuf> {
    let program = format!("peer-{engine}");
    // The cargo that runs this, if it is run by one: the same toolchain.
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--package", package, "--bin", &program]);
    succeed(cargo.current_dir(workspace()))?;
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join("release").join(program))
}

fn build_go(engine: &str) -> Result<PathBuf> {
    let program = workspace().join("target").join("go").join(format!("peer-{engine}"));
    let mut go = Command::new("go");
    go.arg("build").arg("-o").arg(&program).arg(format!("./cmd/{engine}"));
    go.env("GOAMD64", GO_PROCESSOR).env("CGO_CFLAGS", GO_C_FLAGS).env("CGO_CXXFLAGS", GO_C_FLAGS);
    succeed(go.current_dir(go_dir()))?;
    Ok(program)
}

/// Runs a compiler; its complaints go where ours go.
fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(|error| format!("{name} cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { wrong(format!("{name} ended with {status}")) }
}

fn ask_about(program: &Path) -> Result<EngineAbout> {
    let output = Command::new(program).arg("about").stdin(Stdio::null()).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Compilers and their flags, for the page.
pub fn compilers(engines: &[EngineAbout]) -> Vec<String> {
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).current_dir(workspace()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.lines().next()?.to_owned())
    };
    let unknown = || "unknown".to_owned();
    let rust = first_line("rustc", "--version").unwrap_or_else(unknown);
    let c = first_line("cc", "--version").unwrap_or_else(unknown);
    let mut said = vec![
        format!("Rust: {rust}, release profile with thin LTO, `-C target-cpu=native`."),
        format!("C and C++ (RocksDB, LMDB, SQLite): {c}, `-O3 -march=native`."),
    ];
    if engines.iter().any(|engine| engine.language == "Go") {
        let go = first_line("go", "version").unwrap_or_else(unknown);
        said.push(format!("Go: {go}, `GOAMD64={GO_PROCESSOR}`; C in it: `{GO_C_FLAGS}`."));
    }
    said
}

/// Version control's name of what is built.
pub fn revision() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(workspace())
        .output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or("unknown".into(), |text| String::from_utf8_lossy(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_does_not_exist_is_told_with_those_that_do() {
        let error = build(&["nosuch".into()]).unwrap_err().to_string();
        assert!(
            error.contains("`nosuch`") && error.contains("lithedb-lsm, lithedb-history, rocksdb"),
            "{error}"
        );
    }

    #[test]
    fn what_cannot_be_built_is_noted_with_its_reason() {
        let mut builds = Builds::default();
        builds.add("x", wrong("no compiler"));
        builds.add("y", Ok(PathBuf::from("/nonexistent/peer-y")));
        assert!(builds.built.is_empty());
        assert_eq!(builds.failed[0], ("x".into(), "no compiler".into()));
        assert_eq!(builds.failed.len(), 2);
    }
}
