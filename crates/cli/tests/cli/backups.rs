//! `lithe backup`: what was there comes back, from a directory and from a stream.

#![expect(clippy::disallowed_methods, reason = "the files of a program that has ended")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::shell::{Run, Shell};

#[test]
fn backups_are_made_listed_verified_restored_and_removed() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let first = shell.db(&["backup", "create", "kept"]);
    assert!(first.stderr.starts_with("made backup 1: "), "{first:?}");
    shell.db(&["put", "otter", "sleeps"]).ok();
    shell.db(&["backup", "create", "kept", "--verify-shared", "--limit", "1GiB"]).ok();
    let table = shell.run(&["backup", "list", "kept"]).ok_text();
    assert_eq!(table.lines().count(), 3, "{table}");
    let lines = shell.run(&["backup", "list", "kept", "--format", "jsonl"]).ok_text();
    let second = lines.lines().nth(1).unwrap();
    assert!(second.contains("\"number\":2") && second.contains("\"written_bytes\""), "{second}");
    let verified = shell.run(&["backup", "verify", "kept"]);
    assert!(verified.stderr.starts_with("ok: 2 backups"), "{verified:?}");
    shell.run(&["backup", "verify", "kept", "2"]).ok();
    shell.run(&["backup", "verify", "kept", "3"]).fails(2);
    shell.run(&["backup", "restore", "kept", "1", "then", "--check"]).ok();
    assert_eq!(shell.run(&["--db", "then", "get", "otter"]).ok(), b"swims");
    let refused = shell.run(&["backup", "restore", "kept", "1", "db"]).fails(2);
    assert!(refused.contains("already"), "{refused}");
    assert_eq!(shell.db(&["get", "otter"]).ok(), b"sleeps");
    shell.run(&["backup", "restore", "kept", "1", "db", "--replace", "--yes"]).ok();
    assert_eq!(shell.db(&["get", "otter"]).ok(), b"swims");
    shell.run(&["backup", "remove", "kept", "1", "--yes"]).ok();
    shell.run(&["backup", "restore", "kept", "1", "gone"]).fails(2);
    shell.run(&["backup", "prune", "kept", "--keep", "0", "--yes"]).fails(2);
    shell.run(&["backup", "prune", "kept", "--keep", "1", "--yes"]).ok();
    shell.run(&["backup", "verify", "kept", "2"]).ok();
    shell.run(&["backup", "remove", "kept", "2", "--yes"]).ok();
    assert_eq!(fs::read_dir(shell.path("kept/files")).unwrap().count(), 0);
    let left = fs::read_dir(shell.path(".")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["db", "kept", "then"]);
}

#[test]
fn a_stream_is_restored_and_imported_and_one_that_was_cut_is_not() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let line = |line: &str| {
        let program = format!("LITHE='{}'; {line}", env!("CARGO_BIN_EXE_lithe"));
        Run::of(shell.shell_command(&program).output().unwrap())
    };
    line("$LITHE --db db backup create --to-stream > sent").ok();
    line("$LITHE backup verify-stream < sent").ok();
    line("$LITHE backup restore-stream again --check < sent").ok();
    assert_eq!(shell.run(&["--db", "again", "get", "otter"]).ok(), b"swims");
    line("$LITHE backup import kept < sent").ok();
    line("$LITHE backup export kept 1 | $LITHE backup restore-stream third").ok();
    assert_eq!(shell.run(&["--db", "third", "get", "otter"]).ok(), b"swims");
    let cut = line("head -c 5000 sent | $LITHE backup restore-stream fourth").fails(4);
    assert!(cut.contains("it was cut"), "{cut}");
    assert!(!shell.path("fourth").exists());
    line("head -c 5000 sent | $LITHE backup import kept").fails(4);
    assert_eq!(shell.run(&["backup", "list", "kept"]).ok_text().lines().count(), 2);
    shell.db(&["backup", "create"]).fails(2);
    shell.db(&["backup", "create", "kept", "--to-stream"]).fails(2);
}

#[test]
fn damage_in_a_repository_is_named_with_the_backups_that_have_it() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    shell.db(&["backup", "create", "kept"]).ok();
    let files = fs::read_dir(shell.path("kept/files")).unwrap();
    let path = files.map(|entry| entry.unwrap().path()).next().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = shell.run(&["backup", "verify", "kept"]);
    assert_eq!(found.code, 4, "{found:?}");
    assert!(found.text().contains("(of backup 1)"), "{found:?}");
    shell.run(&["backup", "restore", "kept", "1", "then"]).fails(4);
    assert!(!shell.path("then").exists());
    assert!(found.stderr.contains("--verify-shared"), "{found:?}");
    // Whatever of it the next one has is written again, and that one is whole.
    for entry in fs::read_dir(shell.path("kept/files")).unwrap() {
        fs::write(entry.unwrap().path(), "nothing of that kind").unwrap();
    }
    shell.db(&["backup", "create", "kept", "--verify-shared"]).ok();
    shell.run(&["backup", "verify", "kept", "2"]).ok();
    shell.run(&["backup", "remove", "kept", "1", "--yes"]).ok();
    shell.run(&["backup", "verify", "kept"]).ok();
}

#[test]
fn an_encrypted_database_is_restored_without_its_key_and_opens_with_it() {
    let shell = Shell::new();
    shell.write("key", &[7; 32]);
    fs::set_permissions(shell.path("key"), Permissions::from_mode(0o600)).unwrap();
    let with_key = |arguments: &[&str]| shell.db(&[&["--key-file", "key"][..], arguments].concat());
    with_key(&["create", "--encrypted"]).ok();
    with_key(&["put", "otter", "swims in the river"]).ok();
    with_key(&["backup", "create", "kept"]).ok();
    shell.run(&["backup", "verify", "kept"]).ok();
    shell.run(&["backup", "restore", "kept", "1", "then"]).ok();
    shell.run(&["--db", "then", "get", "otter"]).fails(2);
    let then = shell.run(&["--db", "then", "--key-file", "key", "get", "otter"]);
    assert_eq!(then.ok(), b"swims in the river");
    for entry in fs::read_dir(shell.path("kept/files")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(5).any(|window| window == b"river"));
    }
}

#[test]
fn a_trail_has_what_comes_between_backups() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    shell.db(&["backup", "archive", "kept"]).fails(2); // There is no such directory.
    shell.db(&["backup", "create", "kept"]).ok();
    let refused = shell.db(&["backup", "archive", "kept"]).fails(2);
    assert!(refused.contains("no trail"), "{refused}");
    let begun = shell.db(&["backup", "archive", "kept", "--begin", "--log-max", "1GiB"]);
    assert!(begun.stderr.starts_with("made backup 2, of trail "), "{begun:?}");
    shell.db(&["put", "otter", "sleeps"]).ok();
    let commits = shell.db(&["commits", "--format", "jsonl"]).ok_text();
    let commit: Value = serde_json::from_str(commits.lines().last().unwrap()).unwrap();
    let stamp = commit["stamp"].as_u64().unwrap();
    let stamp = format!("{}.{}", stamp >> 16, stamp & 0xFFFF);
    shell.db(&["delete", "otter"]).ok();
    let added = shell.db(&["backup", "archive", "kept"]);
    assert!(added.stderr.starts_with("added 2 commits: all up to "), "{added:?}");
    shell.run(&["backup", "restore-at", "kept", &stamp, "then", "--check"]).ok();
    assert_eq!(shell.run(&["--db", "then", "get", "otter"]).ok(), b"sleeps");
    shell.run(&["backup", "restore-at", "kept", "latest", "last"]).ok();
    shell.run(&["--db", "last", "get", "otter"]).fails(1);
    shell.run(&["backup", "restore-at", "kept", "1 hour ago", "before"]).fails(2);
    shell.run(&["backup", "restore-at", "kept", "latest", "none", "--trail", "1"]).fails(2);
    assert!(!shell.path("before").exists() && !shell.path("none").exists());
    let table = shell.run(&["backup", "trails", "kept"]).ok_text();
    assert_eq!(table.lines().count(), 2, "{table}");
    let line = shell.run(&["backup", "trails", "kept", "--format", "jsonl"]).ok_text();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["commits"], &line["end"]), (&json!(2), &Value::Null), "{line}");
    assert_eq!(line["backups"], json!([2]), "{line}");
    let stats = shell.db(&["stats"]).ok_text();
    assert!(stats.contains("trail"), "{stats}");
    // What it has is found to be damaged or missing.
    let trail = line["trail"].as_str().unwrap();
    let segment = shell.path(&format!("kept/trails/{trail}/segment-00000001"));
    let bytes = fs::read(&segment).unwrap();
    let mut damaged = bytes.clone();
    damaged[200] ^= 1;
    fs::write(&segment, damaged).unwrap();
    let found = shell.run(&["backup", "verify", "kept"]);
    assert_eq!(found.code, 4, "{found:?}");
    assert!(found.text().contains("segment-00000001") && found.text().contains(trail), "{found:?}");
    shell.run(&["backup", "restore-at", "kept", "latest", "none"]).fails(4);
    fs::write(&segment, bytes).unwrap();
    shell.run(&["backup", "verify", "kept"]).ok();
    // It ends, and goes.
    shell.db(&["put", "wren", "sings"]).ok();
    shell.db(&["backup", "archive", "kept", "--end"]).ok();
    shell.run(&["backup", "restore-at", "kept", "latest", "end"]).ok();
    assert_eq!(shell.run(&["--db", "end", "get", "wren"]).ok(), b"sings");
    shell.db(&["backup", "archive", "kept"]).fails(2);
    shell.run(&["backup", "remove-trail", "kept", trail, "--yes"]).ok();
    shell.run(&["backup", "remove-trail", "kept", trail, "--yes"]).fails(2);
    assert_eq!(shell.run(&["backup", "trails", "kept"]).ok_text().lines().count(), 1);
    shell.run(&["backup", "verify", "kept"]).ok();
}

#[test]
fn a_repository_whose_lists_are_gone_is_not_ok_and_holds_no_database() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    shell.db(&["backup", "create", "kept"]).ok();
    let said = shell.run(&["backup", "restore", "kept", "1", "kept/inner"]).fails(2);
    assert!(said.contains("kept/inner is in a directory with backups"), "{said}");
    shell.run(&["backup", "verify", "kept"]).ok();
    std::fs::remove_file(shell.path("kept/backups/backup-00000001")).unwrap();
    let run = shell.run(&["backup", "verify", "kept"]);
    assert!(run.text().contains("files of backups, and no list of a backup"), "{run:?}");
    assert!(run.fails(4).contains("1 problem found"));
}
