//! `lithe upgrade`: what it says, what it refuses, what it leaves.

use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::shell::Shell;

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn bytes_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = std::fs::OpenOptions::new().read(true).open(path).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn there_is_nothing_to_be_done_and_it_says_so() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let said = shell.run(&["upgrade", "db"]).ok_text();
    assert!(said.contains("format 1, the newest: nothing to be done"), "{said}");
    assert!(said.contains("manifest") && said.contains("segment"), "{said}");
    let before = files_below(&shell.path("db"));
    let said = shell.db(&["--read-only", "upgrade", "--format", "json"]).ok_text();
    assert!(said.contains("\"format\":1") && said.contains("\"due_files\":null"), "{said}");
    assert_eq!(files_below(&shell.path("db")), before);
    shell.db(&["--read-only", "upgrade", "--everything"]).fails(2);
    assert!(shell.run(&["version"]).ok_text().contains("format 1"));
}

#[test]
fn everything_is_written_anew_when_it_is_asked_for() {
    let shell = Shell::new();
    shell.write("words", (0..2000).map(|n| format!("word {n}\n")).collect::<String>().as_bytes());
    shell.db(&["load", "-q", "words"]).ok();
    shell.db(&["put", "large", &"x".repeat(6000)]).ok();
    let before = files_below(&shell.path("db"));
    let said = shell.db(&["upgrade", "--everything"]).ok_text();
    assert!(said.contains("files written anew"), "{said}");
    let data = |path: &&PathBuf| !path.ends_with("LOCK") && !path.to_str().unwrap().contains("wal");
    let after = files_below(&shell.path("db"));
    assert!(before.iter().filter(data).all(|path| !after.contains(path)), "{after:?}");
    assert_eq!(shell.db(&["count"]).ok_text(), "2001\n");
    shell.db(&["check"]).ok();
}

#[test]
fn a_newer_file_is_refused_with_both_versions() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let manifests = std::fs::read_dir(shell.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifests.filter(|path| path.to_str().unwrap().contains("MANIFEST-"));
    let manifest = manifest.max().unwrap();
    // The version is looked at in front of the checksum.
    let file = std::fs::OpenOptions::new().write(true).open(&manifest).unwrap();
    file.write_all_at(&[9], 8).unwrap();
    for command in [&["upgrade"][..], &["get", "otter"]] {
        let error = shell.db(command).fails(3);
        let name = manifest.file_name().unwrap().to_str().unwrap();
        for text in [name, "version 9", "up to 2", "newer `lithe`"] {
            assert!(error.contains(text), "{error}");
        }
    }
}

#[test]
fn what_is_damaged_is_not_written_anew() {
    let shell = Shell::new();
    shell.write("words", (0..2000).map(|n| format!("word {n}\n")).collect::<String>().as_bytes());
    shell.db(&["load", "-q", "words"]).ok();
    let files = files_below(&shell.path("db"));
    let segment = files.iter().find(|path| path.to_str().unwrap().contains("seg-")).unwrap();
    crate::damage::flip_a_bit(segment, 900);
    let run = shell.db(&["upgrade", "--everything"]);
    assert!(run.text().contains("seg-"), "{run:?}");
    run.fails(4);
    assert!(segment.exists());
}

/// What the store makes is its owner's alone, whatever the umask says.
#[test]
fn files_of_the_program_are_for_their_owner() {
    let shell = Shell::new();
    let program = env!("CARGO_BIN_EXE_lithe");
    let line = format!("umask 000; {program} --db db put otter swims");
    let made = shell.shell_command(&line).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    shell.write("words", b"a\nb\n");
    shell.run(&["load", "-q", "--table", "words.tbl", "words"]).ok();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in files_below(&shell.path("db")) {
        assert_eq!(mode(&file), 0o600, "{file:?}");
        assert_eq!(mode(file.parent().unwrap()), 0o700, "{file:?}");
    }
    assert_eq!(mode(&shell.path("words.tbl")), 0o600);
}

/// A database that somebody else has made may have links in the place of files.
#[test]
fn a_link_in_the_place_of_a_file_leads_nowhere() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let victim = shell.path("victim");
    for file in files_below(&shell.path("db")) {
        if !file.exists() {
            continue; // Of a log file it depends on when it was made ready.
        }
        std::fs::copy(&file, &victim).unwrap();
        std::fs::remove_file(&file).unwrap();
        let before = bytes_of(&victim);
        symlink(&victim, &file).unwrap();
        // Some are not needed to open it: these are made anew, beside the link or in its place.
        shell.db(&["put", "marten", "climbs"]);
        assert!(bytes_of(&victim) == before, "{file:?}");
        std::fs::remove_dir_all(shell.path("db")).unwrap();
        shell.db(&["put", "otter", "swims"]).ok();
    }
    // Where the user names a file, a link will do.
    symlink(shell.path("db/wal/00000001.wal"), shell.path("log")).unwrap();
    shell.run(&["inspect", "log"]).ok();
}

#[test]
fn names_in_messages_steer_no_terminal() {
    let shell = Shell::new();
    shell.db(&["put", "k", "v"]).ok();
    let error = shell.run(&["--db", "no\u{1b}[2Jsuch\u{9b}m", "count"]).fails(3);
    assert!(!error.contains('\u{1b}') && !error.contains('\u{9b}'), "{error:?}");
    let name = "evil\u{1b}[2J\u{9b}\u{202e}name";
    shell.db(&["keyspaces", "create", name]).ok();
    for format in ["table", "json", "jsonl"] {
        let list = shell.db(&["keyspaces", "--format", format]).ok_text();
        assert!(list.contains("evil"), "{list:?}");
        assert!(!list.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{format}: {list:?}");
    }
    let said = shell.db(&["keyspaces", "drop", name, "--yes"]);
    assert!(!said.stderr.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{said:?}");
}
