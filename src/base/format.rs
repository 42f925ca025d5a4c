//! Versions of the format: every one that this program writes and reads, in one place.
//!
//! Each kind of file says its own version, in its header. A *format* is a set of these, counted
//! from 1: what a release writes. Which format a database has is told by the header of its
//! manifest, which is opened before anything else; so whatever changes a kind of file changes the
//! version of [`FILE_VERSION`] and [`FILE_VERSION_SEALED`] as well, and a program of before refuses
//! the database at its manifest, with nothing changed. `docs/format/versions.md` has the table and
//! the rules.
//!
//! | constant | what has it |
//! |---|---|
//! | [`FILE_VERSION`], [`FILE_VERSION_SEALED`] | headers of the files of a database |
//! | [`TABLE_FOOTER_VERSION`], [`TABLE_FOOTER_VERSION_EXTENDED`] | the footer of a table |
//! | [`PAYLOAD_VERSION`] | the payload of a block |
//! | [`KEYRING_VERSION`] | a slot of the keyring |
//! | [`SPACE_SEGMENT_VERSION`], [`SPACE_INDEX_VERSION`] | flexible spaces |

/// The format that this program writes.
pub const FORMAT_VERSION: u32 = 1;

/// The version of files that are not sealed.
pub const FILE_VERSION: u32 = 1;
/// The version of those that are, in the lower half of the field; the other half has the number of
/// their data key.
pub const FILE_VERSION_SEALED: u32 = 2;
/// The newest version of files that this program knows.
pub const FILE_VERSION_MAX: u32 = FILE_VERSION_SEALED;

/// The version of the footer of a table.
pub const TABLE_FOOTER_VERSION: u32 = 1;
/// The same of one with an extension, which tables with a dictionary have.
pub const TABLE_FOOTER_VERSION_EXTENDED: u32 = 2;

/// The version of a block's payload.
pub const PAYLOAD_VERSION: u8 = 1;

/// The version of a slot of the keyring.
pub const KEYRING_VERSION: u32 = 1;

/// The version of segments of flexible spaces.
pub const SPACE_SEGMENT_VERSION: u32 = 1;
/// The version of checkpoints of flexible spaces.
pub const SPACE_INDEX_VERSION: u32 = 1;

/// What a version field says that is not known: the version alone, where it is that which is not.
#[must_use]
pub fn version_found(field: u32) -> u32 {
    let version = u32::from(field as u16);
    if version > FILE_VERSION_MAX { version } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_told_without_the_number_of_a_key() {
        assert_eq!(version_found(3), 3);
        assert_eq!(version_found(7 << 16 | 3), 3);
        // A version that is known, with what it never has beside it.
        assert_eq!(version_found(7 << 16 | 1), 7 << 16 | 1);
        assert_eq!(version_found(2), 2);
    }
}
