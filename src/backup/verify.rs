//! Reading everything back: lists, and files against their hashes.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use super::BackupRepository;
use super::list::Content;
use super::trail::TrailProblem;
use super::work::{BackupOptions, Work};
use crate::base::{Error, Result};

/// What [`BackupRepository::verify`] has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupCheck {
    /// Backups that were looked at.
    pub backups: u64,
    /// Files of them, each counted once.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Files that no list names; counted where all backups were looked at, and all lists could be
    /// read. An interrupted backup or removal leaves such, until the next one. So does a list that
    /// was lost.
    pub files_unlisted: u64,
    /// What is wrong, by file.
    pub problems: Vec<BackupProblem>,
    /// Segments of trails that were looked at.
    pub segments: u64,
    /// Bytes of these.
    pub segment_bytes: u64,
    /// What is wrong with trails.
    pub trail_problems: Vec<TrailProblem>,
}

impl BackupCheck {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty() && self.trail_problems.is_empty()
    }
}

/// Something that is missing in a repository, damaged, or not to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProblem {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// The backups that cannot be restored on account of it.
    pub backups: Vec<u64>,
}

impl BackupRepository {
    /// Reads the files of a backup, or of all, each once, and verifies them, and their lists; with
    /// all of them the segments of trails, too, of which none is to be missing. What is wrong is in
    /// what is returned. That a backup is what the database was shows when it is restored and
    /// opened. In memory are 150 bytes a file, and 8 for each backup that has it.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such backup; `FormatVersion`; `Io` when it cannot be told
    /// which backups there are, or the work was ended; `Locked` while somebody changes the
    /// repository.
    pub fn verify(&self, number: Option<u64>, options: BackupOptions<'_>) -> Result<BackupCheck> {
        let _lock = self.share()?;
        let numbers = match number {
            Some(number) => vec![number],
            None => self.numbers()?,
        };
        let mut check = BackupCheck { backups: numbers.len() as u64, ..BackupCheck::default() };
        let mut contents: BTreeMap<Content, Vec<u64>> = BTreeMap::new();
        for number in numbers {
            match self.read_list(number) {
                Ok(list) => {
                    for entry in list.entries() {
                        let backups = contents.entry(entry.content).or_default();
                        if backups.last() != Some(&number) {
                            backups.push(number);
                        }
                    }
                }
                Err(error) => check.problems.push(problem(error, vec![number])?),
            }
        }
        let mut work = Work::begin(options);
        let (segments, segment_bytes) = match number {
            Some(_) => (0, 0),
            None => self.trail_bytes()?,
        };
        if number.is_none() && check.problems.is_empty() {
            check.files_unlisted =
                self.files().count_but(|content| contents.contains_key(content))?;
        }
        let lens = contents.keys().map(|content| content.len);
        let bytes = lens.fold(segment_bytes, u64::saturating_add);
        work.expect(contents.len() as u64 + segments, bytes);
        let files = self.files();
        for (content, backups) in contents {
            let path = files.path_of(&content);
            let read = files.read(&content, |piece| work.advance(&path, piece.len()));
            if let Err(error) = read {
                check.problems.push(problem(error, backups)?);
            }
            check.files += 1;
            check.bytes = check.bytes.saturating_add(content.len);
            work.end_file(&path)?;
        }
        if number.is_none() {
            self.verify_trails(&mut check, &mut work)?;
        }
        Ok(check)
    }
}

/// # Errors
/// What is no damage, and that the work was ended.
fn problem(error: Error, backups: Vec<u64>) -> Result<BackupProblem> {
    match error {
        Error::Corruption { file, offset, what } => {
            let what = format!("at {offset}: {what}");
            Ok(BackupProblem { file, what, backups })
        }
        // A disk that does not give it says so like this, and all others are to be looked at too.
        Error::Io { action, path: file, source } if source.kind() != ErrorKind::Interrupted => {
            let what = format!("could not {action} it: {source}");
            Ok(BackupProblem { file, what, backups })
        }
        other => Err(other),
    }
}
