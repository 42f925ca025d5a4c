//! Checks the code base itself: what rustfmt and clippy cannot see.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules of the library, lowest layer first. A module may use only modules before it.
const LAYERS: &[&[&str]] = &[
    &["memory"],
    &["base"],
    &["seal"],
    &["storage"],
    &["pieces"],
    &["cache"],
    &["block"],
    &["wal", "value_log", "manifest"],
    &["memtable"],
    &["merge"],
    &["operator", "extractor"],
    &["structure"],
    &["flex_space"],
    &["jobs"],
    &["db"],
    &["backup"],
    &["inspect"],
];
/// Where locks, atomics and threads of the standard library may be used: below `base::sync`, or
/// held only while nothing of `base::sync` is used (`src/base/sync/mod.rs` says why).
const KEEP_STD_SYNC: &[&str] = &[
    "memory/",
    "base/sync/",
    "base/counter.rs",
    "base/seeded.rs",
    "storage/sim/",
    "storage/memory.rs",
    "storage/content.rs",
    "storage/names.rs",
    "storage/locks.rs",
];
/// The same, whoever schedules.
const PLAIN_SYNC: &[&str] = &["Arc", "Weak", "PoisonError", "TryLockError", "LazyLock"];
const LINES_PER_FILE_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;
/// Of `docs/ARCHITECTURE.md`: details belong to the headers of files.
const MAP_LINES_MAX: usize = 300;
/// Split, so that this file does not contain what it looks for.
const REMINDERS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

#[test]
fn source_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut problems = BTreeSet::new();
    for folder in ["src", "tests", "crates", "examples", "fuzz/fuzz_targets"] {
        for file in rust_files(&root.join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(root).unwrap().display().to_string();
            check_file(&name, &text, &mut problems);
            if let Some(in_library) = name.strip_prefix("src/") {
                check_layers(in_library, &text, &mut problems);
                check_sync(in_library, &text, &mut problems);
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_map_can_be_read_in_one_go() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ARCHITECTURE.md");
    let lines = fs::read_to_string(map).unwrap().lines().count();
    assert!(lines <= MAP_LINES_MAX, "docs/ARCHITECTURE.md has {lines} lines");
}

fn check_file(name: &str, text: &str, problems: &mut BTreeSet<String>) {
    if !text.starts_with("//!") {
        problems.insert(format!("{name}: no `//!` header"));
    }
    if text.lines().count() > LINES_PER_FILE_MAX {
        problems.insert(format!("{name}: more than {LINES_PER_FILE_MAX} lines"));
    }
    for (index, line) in text.lines().enumerate() {
        if line.chars().count() > COLUMNS_MAX {
            problems.insert(format!("{name}:{}: over {COLUMNS_MAX} columns", index + 1));
        }
        if REMINDERS.iter().any(|reminder| line.contains(reminder)) {
            problems.insert(format!("{name}:{}: leftover reminder", index + 1));
        }
    }
}

fn check_layers(name: &str, text: &str, problems: &mut BTreeSet<String>) {
    let Some(rank) = rank_of(name.split(['/', '.']).next().unwrap_or("")) else {
        return; // lib.rs: it may name every layer.
    };
    for (index, line) in text.lines().enumerate() {
        // One module per `use`, so that every line names its layer.
        if line.contains("use crate::{") || line.contains("super::super::") {
            problems.insert(format!("{name}:{}: write `use crate::<module>::...`", index + 1));
        }
        if line.contains("std::fs") && !name.starts_with("storage/") {
            problems.insert(format!("{name}:{}: files only through `storage`", index + 1));
        }
        for used in line.split("crate::").skip(1) {
            let module =
                used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            if rank_of(module).is_some_and(|other| other > rank) {
                problems.insert(format!("{name}:{}: uses the higher layer `{module}`", index + 1));
            }
        }
    }
}

/// Locks, atomics and threads come from `base::sync`, so that a scheduler can have them all. Tests
/// may do as they like.
fn check_sync(name: &str, text: &str, problems: &mut BTreeSet<String>) {
    let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
    if is_test || KEEP_STD_SYNC.iter().any(|kept| name.starts_with(kept)) {
        return;
    }
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("mod tests {") {
            return;
        }
        // A static outlives a schedule.
        if line.trim_start().starts_with("//") || line.starts_with("static ") {
            continue;
        }
        let mut used = line.split("std::sync::").skip(1);
        let is_plain = used.all(|used| match used.strip_prefix('{') {
            Some(list) => {
                list.split(['}', ',']).all(|of| is_plain_sync(of.trim_matches([' ', ';'])))
            }
            None => is_plain_sync(used.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("")),
        });
        if !is_plain || line.contains("std::thread") || line.contains("arc_swap::") {
            problems.insert(format!("{name}:{}: from `base::sync`", index + 1));
        }
    }
}

fn is_plain_sync(name: &str) -> bool {
    name.is_empty() || PLAIN_SYNC.contains(&name)
}

fn rank_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new(); // The folder does not exist yet.
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
