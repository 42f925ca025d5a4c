//! Names of numbered files: a stem and a number, of eight digits or more if it needs them. A name
//! of any other form is a foreign one, and left alone.

use std::path::Path;

use super::{EntryType, Storage};
use crate::base::{Error, Result};

/// The names of files with this stem, as in `seg-00000012`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedNames(pub &'static str);

impl NumberedNames {
    pub(crate) fn name(self, number: u64) -> String {
        format!("{}{number:08}", self.0)
    }

    /// The number in a name; `None` for foreign ones.
    pub(crate) fn number_of(self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(self.0)?.parse().ok()?;
        (name == self.name(number)).then_some(number)
    }

    /// The numbers of the files in a directory, ascending.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn numbers_in(self, storage: &dyn Storage, dir: &Path) -> Result<Vec<u64>> {
        let entries = storage.list_dir(dir).map_err(|error| Error::io("list", dir, error))?;
        let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
        let mut numbers: Vec<u64> = files.filter_map(|entry| self.number_of(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_told_from_a_foreign_name() {
        let names = NumberedNames("seg-");
        for number in [0, 7, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(names.number_of(&names.name(number)), Some(number));
        }
        for foreign in ["seg-7", "seg-+0000007", "seg-000000007", "seg-", "val-00000007", "notes"] {
            assert_eq!(names.number_of(foreign), None, "{foreign}");
        }
    }
}
