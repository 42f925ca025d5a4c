//! What Cargo says of the workspace: packages, how they depend on each other, and what the lock
//! file has of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Outcome, read};

/// What is passed on to others: the library, and the program.
const SHIPPED: [&str; 2] = ["lithedb", "lithe-cli"];
/// Where packages come from that are no part of the workspace.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Flags of the compiler that tests alone are built with: what is wanted by them only is passed on
/// to nobody.
const TEST_FLAGS: [&str; 2] = ["cfg(loom)", "cfg(shuttle)"];

/// A package.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// How Cargo tells it from others.
    pub id: String,
    pub name: String,
    pub version: String,
    /// As it says itself.
    pub licence: String,
    pub repository: String,
    /// None for those of the workspace.
    pub source: Option<String>,
    /// SHA-256 of its archive, by the lock file.
    pub checksum: Option<String>,
    /// Where it lies.
    pub dir: PathBuf,
    /// What it wants of others: name and versions.
    pub requirements: Vec<(String, String)>,
    /// Names of those that it wants with some feature only.
    pub optional: BTreeSet<String>,
    /// Ids of the packages that it is built with.
    pub uses: Vec<String>,
    /// Whether it is in what is passed on, or builds it; others are for tests and measurements.
    pub is_shipped: bool,
}

/// All packages, by name and version.
#[derive(Debug, Default)]
pub struct Supply {
    pub packages: Vec<Package>,
}

impl Supply {
    /// Of the workspace in `root`, with all features, for all systems.
    pub fn of_workspace(root: &Path) -> Outcome<Supply> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["metadata", "--format-version", "1", "--locked", "--all-features"];
        let output = Command::new(cargo).args(arguments).current_dir(root).output();
        let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cargo metadata: {error}"))?;
        let checksums = checksums_in(&read(&root.join("Cargo.lock"))?);
        Supply::of(&metadata, &checksums)
    }

    /// Of what `cargo metadata` has printed.
    pub fn of(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Outcome<Supply> {
        let packages = metadata["packages"].as_array().ok_or("no packages are named")?;
        let mut supply =
            Supply { packages: packages.iter().map(|of| package(of, checksums)).collect() };
        let nodes = metadata["resolve"]["nodes"].as_array().ok_or("nothing is resolved")?;
        let mut built_with: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for node in nodes {
            built_with.insert(text(&node["id"]), uses_of(node));
        }
        for package in &mut supply.packages {
            package.uses = built_with.get(package.id.as_str()).cloned().unwrap_or_default();
        }
        supply.note_shipped();
        supply.packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(supply)
    }

    fn note_shipped(&mut self) {
        let packages = &mut self.packages;
        let numbered = packages.iter().enumerate();
        let by_id: BTreeMap<String, usize> =
            numbered.map(|(index, package)| (package.id.clone(), index)).collect();
        let mut to_visit: Vec<usize> =
            (0..packages.len()).filter(|index| packages[*index].is_root()).collect();
        while let Some(index) = to_visit.pop() {
            if packages[index].is_shipped {
                continue;
            }
            packages[index].is_shipped = true;
            let package = &packages[index];
            let used = package.uses.iter().filter_map(|id| by_id.get(id).copied());
            to_visit.extend(used.filter(|other| package.passes_on(&packages[*other])));
        }
    }

    /// Those that are no part of the workspace.
    pub fn of_others(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_some())
    }

    /// The workspace's own.
    pub fn own(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }
}

impl Package {
    /// Whether it is of the registry of the Rust project.
    pub fn is_of_crates_io(&self) -> bool {
        self.source.as_deref() == Some(CRATES_IO)
    }

    /// Whether it is passed on by itself.
    fn is_root(&self) -> bool {
        self.source.is_none() && SHIPPED.contains(&self.name.as_str())
    }

    /// Whether one that it is built with is passed on with it. Of the workspace's other packages
    /// the program takes no features.
    fn passes_on(&self, other: &Package) -> bool {
        let is_taken_whole = self.source.is_some() || self.is_root();
        is_taken_whole || !self.optional.contains(&other.name)
    }

    /// Its package URL.
    pub fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn package(of: &Value, checksums: &BTreeMap<(String, String), String>) -> Package {
    let owned = |field: &str| text(&of[field]).to_owned();
    let (name, version) = (owned("name"), owned("version"));
    let requirements = || of["dependencies"].as_array().into_iter().flatten();
    let optional = requirements().filter(|other| other["optional"] == true);
    let optional = optional.map(|other| text(&other["name"]).to_owned()).collect();
    let requirements = requirements()
        .filter(|other| other["path"].is_null())
        .map(|other| (text(&other["name"]).to_owned(), text(&other["req"]).to_owned()));
    Package {
        id: owned("id"),
        licence: owned("license"),
        repository: owned("repository"),
        source: of["source"].as_str().map(str::to_owned),
        checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
        dir: Path::new(text(&of["manifest_path"])).parent().unwrap_or(Path::new("")).to_owned(),
        requirements: requirements.collect(),
        optional,
        uses: Vec::new(),
        is_shipped: false,
        name,
        version,
    }
}

/// What a package is built with: for itself, and for its build script; not for its tests.
fn uses_of(node: &Value) -> Vec<String> {
    let others = node["deps"].as_array().into_iter().flatten();
    let is_built_in = |other: &&Value| {
        let mut kinds = other["dep_kinds"].as_array().into_iter().flatten();
        kinds.any(|kind| {
            let is_built_in = kind["kind"].is_null() || kind["kind"] == "build";
            is_built_in && !TEST_FLAGS.contains(&text(&kind["target"]))
        })
    };
    let mut uses: Vec<String> =
        others.filter(is_built_in).map(|other| text(&other["pkg"]).to_owned()).collect();
    uses.sort();
    uses
}

/// The checksums in a lock file, by name and version.
fn checksums_in(lock_file: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for entry in lock_file.split("[[package]]") {
        let field = |name: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.map(|value| value.trim().trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\n\
                    checksum = \"00ff\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found = checksums_in(lock);
        assert_eq!(found.get(&("a".to_owned(), "1.0.0".to_owned())), Some(&"00ff".to_owned()));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn what_only_tests_use_is_not_shipped() {
        let package = |name: &str, source: Value| {
            serde_json::json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT",
                "source": source, "manifest_path": "/x/Cargo.toml", "dependencies": [] })
        };
        let uses = |name: &str, kind: Value| {
            let kinds = [serde_json::json!({ "kind": kind })];
            serde_json::json!({ "pkg": name, "dep_kinds": kinds })
        };
        let metadata = serde_json::json!({
            "packages": [package("lithedb", Value::Null), package("a", "r".into()),
                package("b", "r".into()), package("c", "r".into()), package("d", "r".into())],
            "resolve": { "nodes": [
                { "id": "lithedb", "deps": [uses("a", Value::Null), uses("b", "dev".into())] },
                { "id": "a", "deps": [uses("c", "build".into())] },
                { "id": "b", "deps": [uses("d", Value::Null)] },
            ] },
        });
        let supply = Supply::of(&metadata, &BTreeMap::new()).unwrap();
        let shipped: Vec<&str> = supply
            .of_others()
            .filter(|package| package.is_shipped)
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(shipped, ["a", "c"]);
        assert_eq!(supply.own().count(), 1);
    }

    #[test]
    fn what_is_wanted_by_a_flag_of_tests_is_not_built_in() {
        let node = serde_json::json!({ "deps": [
            { "pkg": "a", "dep_kinds": [{ "kind": null, "target": "cfg(unix)" }] },
            { "pkg": "b", "dep_kinds": [{ "kind": null, "target": "cfg(shuttle)" }] },
            { "pkg": "c", "dep_kinds": [{ "kind": null, "target": "cfg(loom)" },
                { "kind": null, "target": null }] },
        ] });
        assert_eq!(uses_of(&node), ["a", "c"]);
    }

    /// As of the simulation, which the program has without its campaigns.
    #[test]
    fn what_the_program_takes_no_feature_for_is_not_shipped() {
        let package = |name: &str, source: Value, wants: Value| {
            serde_json::json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT",
                "source": source, "manifest_path": "/x/Cargo.toml", "dependencies": wants })
        };
        let wants = |name: &str, optional: bool| -> Value {
            serde_json::json!({ "name": name, "req": "^1", "optional": optional, "path": null })
        };
        let uses = |name: &str| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": null }] });
        let metadata = serde_json::json!({
            "packages": [
                package("lithe-cli", Value::Null, serde_json::json!([wants("asked", true)])),
                package("lithe-sim", Value::Null,
                    serde_json::json!([wants("always", false), wants("campaigns", true)])),
                package("always", "r".into(), serde_json::json!([wants("inner", true)])),
                package("asked", "r".into(), serde_json::json!([])),
                package("campaigns", "r".into(), serde_json::json!([])),
                package("inner", "r".into(), serde_json::json!([])),
            ],
            "resolve": { "nodes": [
                { "id": "lithe-cli", "deps": [uses("lithe-sim"), uses("asked")] },
                { "id": "lithe-sim", "deps": [uses("always"), uses("campaigns")] },
                { "id": "always", "deps": [uses("inner")] },
            ] },
        });
        let supply = Supply::of(&metadata, &BTreeMap::new()).unwrap();
        let shipped: Vec<&str> = supply
            .of_others()
            .filter(|package| package.is_shipped)
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(shipped, ["always", "asked", "inner"]);
    }
}
