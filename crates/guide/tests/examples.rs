//! Runs every program of `examples/`, as they were built.
//!
//! `cargo test --workspace` has built them by then. Where they were not, as in
//! `cargo test -p lithe-guide`, Cargo is asked to.

#![cfg(test)]

use std::collections::BTreeSet;
use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const NAMES: [&str; 12] = [
    "backup_and_restore",
    "batch_and_snapshot",
    "bulk_load",
    "change_feed_consumer",
    "choosing_structures",
    "encrypted",
    "hello",
    "merge_counter",
    "secondary_index",
    "time_series_expiry",
    "time_travel_undo",
    "transactions_bank",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where they are: beside the folder of this program.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let this = std::env::current_exe().unwrap();
        let profile = this.parent().and_then(Path::parent).expect("it lies in PROFILE/deps");
        let folder = profile.join("examples");
        if NAMES.iter().any(|name| !folder.join(format!("{name}{EXE_SUFFIX}")).is_file()) {
            build(profile);
        }
        folder
    })
}

fn build(profile: &Path) {
    let target = profile.parent().expect("the target directory");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--package", "lithedb", "--examples", "--locked"]);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let done = command.arg("--target-dir").arg(target).current_dir(root()).status().unwrap();
    assert!(done.success(), "the examples cannot be built");
}

fn run(name: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(folder().join(format!("{name}{EXE_SUFFIX}")));
    let output = command.current_dir(home.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}\n{complaints}");
    let left = home.path().read_dir().unwrap().count();
    assert_eq!(left, 0, "{name} has left something where it was started");
    assert!(!said.trim().is_empty(), "{name} says nothing");
    said
}

#[test]
fn every_example_is_listed() {
    let there: BTreeSet<String> = std::fs::read_dir(root().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, NAMES.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn every_example_runs() {
    for name in NAMES {
        run(name);
    }
}

#[test]
fn examples_say_what_they_did() {
    assert!(run("hello").contains("2 animals after reopening"));
    assert!(run("batch_and_snapshot").contains("before: 2 orders, 1 of them Ada's"));
    assert!(run("transactions_bank").contains("there are 1000 cents"));
    assert!(run("merge_counter").contains("4000 hits by 4 threads\ntags: abc"));
    assert!(run("time_travel_undo").contains("put back 2, deleted 0"));
    assert!(run("change_feed_consumer").contains("both have 2 orders"));
}
