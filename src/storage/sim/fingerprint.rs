//! Fingerprints: whether two disks are the same one.
//!
//! Owns what of a machine is told to a hash: names, links, lengths, room taken, bytes, and what is
//! not synced. Must not change anything.

use std::path::Path;

use super::disk::{Change, DataChange, Disk};
use super::machine::Machine;
use super::random::mix;
use crate::base::hash_key;
use crate::storage::EntryType;

/// What stands behind the entries of a directory, and behind each part of a fingerprint.
const END: u64 = 0xE4D;

/// A hash of a sequence of numbers.
#[derive(Default)]
struct Sequence(u64);

impl Sequence {
    fn add(&mut self, value: u64) {
        self.0 = mix(self.0.rotate_left(7) ^ value);
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        self.add(hash_key(bytes));
    }
}

impl Machine {
    /// Of what a process that starts now can see, and of what a crash can make of it.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hash = Sequence::default();
        self.live.tell(Path::new("/"), &mut hash);
        hash.add(self.capacity);
        let unsynced = self.unsynced.in_order();
        if unsynced.is_empty() {
            return hash.0; // D1: what is durable is what the process sees.
        }
        self.durable.tell(Path::new("/"), &mut hash);
        for change in unsynced {
            tell_change(change, &mut hash);
        }
        hash.0
    }
}

impl Disk {
    fn tell(&self, directory: &Path, hash: &mut Sequence) {
        for entry in self.names.list(directory).unwrap_or_default() {
            hash.add_bytes(entry.name.as_bytes());
            let path = directory.join(&entry.name);
            match (entry.entry_type, self.names.find_file(&path)) {
                (EntryType::Directory, _) => self.tell(&path, hash),
                (_, Ok(file)) => {
                    hash.add(file.0); // So that links are told from copies.
                    hash.add(self.contents.get(&file).map_or(END, |content| content.digest()));
                }
                (_, Err(_)) => {}
            }
        }
        hash.add(END);
    }
}

fn tell_change(change: Change<'_>, hash: &mut Sequence) {
    match change {
        Change::Data(file, DataChange::Write { offset, bytes }) => {
            hash.add(file.0);
            hash.add(*offset);
            hash.add_bytes(bytes);
        }
        Change::Data(file, DataChange::Punch { offset, zeros }) => {
            hash.add(file.0);
            hash.add(!*offset);
            hash.add(zeros.len() as u64);
        }
        Change::Data(file, other) => {
            hash.add(file.0);
            hash.add_bytes(format!("{other:?}").as_bytes());
        }
        Change::Name(change) => hash.add_bytes(format!("{change:?}").as_bytes()),
    }
    hash.add(END);
}
