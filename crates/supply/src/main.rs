//! `lithe-supply`: what LitheDB is built of.
//!
//! ```text
//! lithe-supply check      the rules of deny.toml for every dependency: licences, bans, sources
//! lithe-supply sbom       a bill of materials of library and program, as CycloneDX 1.5
//! lithe-supply list       the table of THIRD-PARTY.md
//! lithe-supply texts      the licence texts that the packages come with
//! ```
//!
//! Everything is what Cargo says by the lock file. `cargo deny` knows the same rules, and
//! advisories besides; it has to be installed, so that what must hold for every change is looked at
//! here.

mod bill;
mod licence;
mod listing;
mod metadata;
mod policy;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use metadata::Supply;
use policy::Policy;

/// Why nothing came of it, in a sentence.
type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    match run(&command) {
        Ok(text) => match std::io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(what) => {
            let _nobody_reads_it = writeln!(std::io::stderr(), "error: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str) -> Outcome<String> {
    let root = root();
    match command {
        "check" => {
            let supply = Supply::of_workspace(&root)?;
            let policy = Policy::read(&root.join("deny.toml"))?;
            let problems = policy.problems(&supply);
            match problems.is_empty() {
                true => Ok(format!("ok: {} packages of others\n", supply.of_others().count())),
                false => Err(problems.join("\n       ")),
            }
        }
        "sbom" => bill::cyclone_dx(&Supply::of_workspace(&root)?).map(|bill| bill + "\n"),
        "list" => Ok(listing::table(&Supply::of_workspace(&root)?)),
        "texts" => listing::texts(&Supply::of_workspace(&root)?),
        _ => Err("say check, sbom, list or texts".to_owned()),
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

#[expect(clippy::disallowed_methods, reason = "files of the source tree, not of a database")]
fn read(path: &Path) -> Outcome<String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dependencies_keep_to_the_rules() {
        run("check").unwrap();
    }

    /// What is committed is what `lithe-supply list` prints.
    #[test]
    fn the_list_of_third_parties_is_that_of_the_lock_file() {
        let committed = read(&root().join("THIRD-PARTY.md")).unwrap();
        let now = run("list").unwrap();
        assert!(committed == now, "run `just third-party`: the dependencies have changed");
    }

    /// So that a program that is passed on can come with them.
    #[test]
    fn the_texts_have_every_package_that_is_built_in() {
        let supply = Supply::of_workspace(&root()).unwrap();
        let texts = run("texts").unwrap();
        for package in supply.of_others().filter(|package| package.is_shipped) {
            let heading = format!("{} {}", package.name, package.version);
            assert!(texts.contains(&heading), "{heading} has no text");
        }
        assert!(texts.contains("Permission is hereby granted"));
    }

    #[test]
    fn an_unknown_command_is_told_what_there_is() {
        assert!(run("sell").unwrap_err().contains("sbom"));
    }
}
