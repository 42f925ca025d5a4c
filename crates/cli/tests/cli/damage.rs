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
