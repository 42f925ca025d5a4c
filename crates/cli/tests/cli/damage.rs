//! A damaged database is reported with exit code 4 and the name of the file.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::shell::Shell;

/// Every file of the database that holds data once it is closed: not the lock, and not the log,
/// whose records have all been flushed.
fn data_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "wal" {
            files.extend(data_files(&path));
        } else if path.is_file() && name != "LOCK" && path.metadata().unwrap().len() > 0 {
            files.push(path);
        }
    }
    files
}

/// The middle of what was written to the file: room that was only preallocated is zeros behind it,
/// which nothing ever reads.
fn middle_of_content(path: &Path) -> u64 {
    let mut file = OpenOptions::new().read(true).open(path).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let content_len = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    content_len as u64 / 2
}

pub fn flip_a_bit(path: &Path, offset: u64) {
    let file: File = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn check_finds_a_flipped_bit_in_every_file() {
    let shell = Shell::new();
    let rows: String = (0..50_000).map(|index| format!("key {index:08}\n")).collect();
    shell.db_with_input(&["load", "-q", "--value", "line", "-"], rows.as_bytes()).ok();
    shell.db(&["check"]).ok();
    let files = data_files(&shell.path("db"));
    assert!(files.len() >= 2, "{files:?}");
    for path in &files {
        let offset = middle_of_content(path);
        flip_a_bit(path, offset);
        let run = shell.db(&["check"]);
        let text = format!("{}{}", run.text(), run.stderr);
        assert_eq!(run.code, 4, "{}: {text}", path.display());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(text.contains(name), "{} is not named: {text}", path.display());
        assert!(text.contains("offset"), "{}: {text}", path.display());
        flip_a_bit(path, offset);
    }
    shell.db(&["check"]).ok();
}

#[test]
fn what_is_no_database_is_refused() {
    let shell = Shell::new();
    shell.write("db", b"a file, not a directory");
    let run = shell.db(&["put", "k", "v"]);
    assert!([3, 4].contains(&run.code) && run.stderr.starts_with("error: "), "{run:?}");
}

#[test]
fn a_database_without_its_manifest_is_damaged_and_not_absent() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    for entry in std::fs::read_dir(shell.path("db")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    for command in
        [&["get", "otter"][..], &["check"], &["--read-only", "stats"], &["put", "a", "b"]]
    {
        let said = shell.db(command).fails(4);
        assert!(said.contains("no manifest") && said.contains("repair"), "{command:?}: {said}");
    }
    shell.run(&["repair", "db", "copy.lithe"]).fails(4); // Which keyspace it was is lost.
    let get = ["--db", "copy.lithe", "--keyspace", "recovered-1", "get", "otter"];
    assert_eq!(shell.run(&get).ok_text(), "swims");
}

#[test]
fn what_is_damaged_is_repaired_into_a_new_database() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    shell.db(&["put", "heron", "wades"]).ok();
    shell.db(&["compact"]).ok();
    let sound = shell.run(&["repair", "db", "copy.lithe"]).ok_text();
    assert!(sound.contains("1 keyspaces, 2 entries"), "{sound}");
    assert_eq!(shell.run(&["--db", "copy.lithe", "get", "otter"]).ok_text(), "swims");
    shell.run(&["repair", "db", "copy.lithe"]).fails(2);
    shell.run(&["repair", "nothing.lithe", "other.lithe"]).fails(3);
}

#[test]
fn a_check_with_a_rate_and_a_file_to_go_on_from_leaves_none_behind() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    shell.db(&["check", "--rate", "100MiB", "--resume", "position"]).ok();
    shell.db(&["check", "--rate", "1"]).fails(2);
}

#[test]
fn a_check_goes_on_with_the_database_that_it_has_begun_with_alone() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let resume = ["-q", "check", "--resume", "position"];
    shell.write("position", b"lithe-check 1 00000000000000ff 1:\n");
    let said = shell.db(&resume).fails(2);
    let (_, id) = said.split_once("00000000000000ff, and this is ").expect("both are named");
    let id = &id[..16];
    shell.write("position", format!("lithe-check 1 {id} 77:\n").as_bytes());
    let said = shell.db(&resume).fails(2);
    assert!(said.contains("behind all keyspaces") && said.contains("remove position"), "{said}");
    shell.write("position", format!("lithe-check 1 {id} 1:6f\nan old problem\n").as_bytes());
    assert!(shell.db(&resume).fails(4).contains("1 problem found"));
    shell.write("position", format!("lithe-check 1 {id} 1:6f\n").as_bytes());
    let text = shell.db(&resume).ok_text();
    assert!(text.ends_with("; read now from 1:6f on, the rest before\n"), "{text}");
    assert!(!shell.path("position").exists());
    shell.write("position", b"1:6f\n");
    assert!(shell.db(&resume).fails(2).contains("not written by a check"));
}
