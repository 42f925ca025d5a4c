//! `inspect`: pieces of files, by number and by offset, their entries and bytes, and damage.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::shell::Shell;

/// A database with something in its files, closed.
fn shell_with_files() -> Shell {
    let shell = Shell::new();
    let rows: Vec<u8> = (0..2000).flat_map(|n| format!("key {n:05}\n").into_bytes()).collect();
    shell.db_with_input(&["load", "-q", "--value", "line-number", "-"], &rows).ok();
    shell.db_with_input(&["put", "large", "-"], &[7; 100_000]).ok();
    shell.db(&["compact", "-q"]).ok();
    shell
}

fn first(shell: &Shell, folder: &str, prefix: &str) -> String {
    let mut names: Vec<PathBuf> = std::fs::read_dir(shell.path(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    names.sort();
    format!("{folder}/{}", names[0].file_name().unwrap().to_str().unwrap())
}

fn bytes_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = OpenOptions::new().read(true).open(path).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn flip(path: &Path, offset: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(&[byte[0] ^ 4]).unwrap();
}

#[test]
fn files_of_every_kind_are_shown_and_stay_as_they_are() {
    let shell = shell_with_files();
    for (folder, prefix) in [
        ("db", "MANIFEST-"),
        ("db/wal", "0"),
        ("db/keyspaces/00000001", "index-"),
        ("db/keyspaces/00000001", "seg-"),
        ("db/values", "val-"),
    ] {
        let file = first(&shell, folder, prefix);
        let before = bytes_of(&shell.path(&file));
        let text = shell.run(&["inspect", &file]).ok_text();
        assert!(text.starts_with("0  offset 0  len "), "{file}: {text}");
        assert!(text.lines().next().unwrap().contains("file header"), "{file}: {text}");
        let lines = shell.run(&["inspect", &file, "--format", "jsonl", "--entries"]).ok_text();
        assert!(lines.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{lines}");
        assert_eq!(bytes_of(&shell.path(&file)), before, "{file}");
    }
}

#[test]
fn one_piece_with_its_entries_or_its_bytes() {
    let shell = shell_with_files();
    let file = first(&shell, "db/keyspaces/00000001", "seg-");
    let piece = shell.run(&["inspect", &file, "--block", "1", "--entries"]).ok_text();
    let lines: Vec<&str> = piece.lines().collect();
    assert!(lines[0].starts_with("1  offset 40  len ") && lines[0].contains("  run  "), "{piece}");
    assert!(lines[1].starts_with("\tvalue\tkey 00000\t1\t"), "{piece}");
    let by_offset = shell.run(&["inspect", &file, "--offset", "41", "--entries"]).ok_text();
    assert_eq!(by_offset, piece);
    let raw = shell.run(&["inspect", &file, "--block", "0", "--raw"]).ok_text();
    assert!(raw.lines().nth(1).unwrap().starts_with("\t00000000\t4c49544845534547"), "{raw}");
    assert_eq!(raw.lines().count(), 1 + 3, "40 bytes are three lines: {raw}");
}

#[test]
fn damage_is_shown_and_what_is_behind_it_too() {
    let shell = shell_with_files();
    let file = first(&shell, "db/keyspaces/00000001", "seg-");
    let sound = shell.run(&["inspect", &file]).ok_text();
    flip(&shell.path(&file), 100);
    let run = shell.run(&["inspect", &file, "-q"]);
    assert_eq!(run.code, 4, "{run:?}");
    let text = run.text();
    let damaged = "1  offset 40  len ";
    assert!(text.lines().nth(1).unwrap().starts_with(damaged), "{text}");
    assert!(text.contains("DAMAGED: nothing verifies here"), "{text}");
    assert_eq!(text.lines().count(), sound.lines().count());
    shell.write("notes", b"not a file of a database");
    assert!(shell.run(&["inspect", "notes"]).fails(2).contains("no file of a database"));
}
