//! Files of a version that is newer than this program: refused, with both versions and the file,
//! and what there is stays as it is.

use std::path::{Path, PathBuf};

use lithedb::base::{checksum, checksum_seeded};
use lithedb::storage::{SimStorage, Storage};
use lithedb::{Access, Db, Error};

use super::describe::describe;
use super::{DATABASES, FORMAT_VERSION, PATH, bytes_of, files_of, looking, storage_with};

/// Newer than any that there is.
const NEWER: u16 = 3;
const NEWEST_KNOWN: u32 = 2;

/// Where a header has its version, and what a checksum has to be for it.
struct Header {
    at: u64,
    len: usize,
    version_at: usize,
    sum_at: usize,
    summed: std::ops::Range<usize>,
    seed: u64,
}

/// The headers of a file, by its name; none where nothing is versioned.
fn headers_of(path: &Path) -> Vec<Header> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let plain = |sum_at: usize| Header {
        at: 0,
        len: sum_at + 8,
        version_at: 8,
        sum_at,
        summed: 0..sum_at,
        seed: checksum_seed(0, 0),
    };
    if let Some(number) = name.strip_suffix(".wal") {
        let number: u64 = number.parse().unwrap();
        let copy = |at: u64| Header {
            at,
            len: 128,
            version_at: 16,
            sum_at: 8,
            summed: 16..128,
            seed: checksum_seed(number, at),
        };
        return vec![copy(0), copy(2048)];
    }
    let stem = name.split('-').next().unwrap();
    match stem {
        "MANIFEST" | "index" | "tables" => vec![plain(56)],
        "seg" | "tbl" | "val" => vec![plain(32)],
        _ => Vec::new(),
    }
}

/// The seed of a checksum of bytes at a place, as `docs/FORMAT.md` has it.
fn checksum_seed(tag: u64, offset: u64) -> u64 {
    let mut z = tag ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Gives the file another version, with checksums that hold. Whether it has headers that do now.
fn set_version(storage: &SimStorage, path: &Path, version: u16) -> bool {
    let bytes = storage.read_file(path).unwrap();
    let mut is_changed = false;
    for header in headers_of(path) {
        let at = header.at as usize;
        let Some(found) = bytes.get(at..at + header.len) else { continue };
        let mut new = found.to_vec();
        let sum = |bytes: &[u8]| checksum_seeded(&bytes[header.summed.clone()], header.seed);
        if new[header.sum_at..header.sum_at + 8] != sum(&new).to_le_bytes() {
            continue; // Not in use.
        }
        new[header.version_at..header.version_at + 2].copy_from_slice(&version.to_le_bytes());
        let sum = sum(&new).to_le_bytes();
        new[header.sum_at..header.sum_at + 8].copy_from_slice(&sum);
        storage.overwrite(path, header.at, &new).unwrap();
        is_changed = true;
    }
    is_changed
}

fn assert_refused(error: &Error, path: &Path, what: &str) {
    let Error::FormatVersion { file, found, known } = error else {
        panic!("{what}: {error}");
    };
    assert_eq!((file.as_path(), *found, *known), (path, u32::from(NEWER), NEWEST_KNOWN), "{what}");
    let said = error.to_string();
    assert!(said.contains("version 3") && said.contains("up to 2"), "{said}");
}

/// Opens, and reads all there is.
fn read_all(storage: &SimStorage, name: &str, access: Access) -> Result<Db, Error> {
    looking(storage, name, 30).access(access).open(PATH)
}

fn is_read_when_opened(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    ["MANIFEST-", "index-", "tables-"].iter().any(|stem| name.starts_with(stem))
}

#[test]
fn a_newer_file_of_any_kind_is_refused_with_both_versions_and_its_name() {
    let mut kinds = std::collections::BTreeSet::new();
    for name in DATABASES {
        let files = files_of(FORMAT_VERSION, name);
        let whole = read_all(&storage_with(&files, PATH), name, Access::ReadOnly).unwrap();
        let versions = whole.file_versions().unwrap();
        drop(whole);
        // Others are leftovers, which opening does away with.
        for path in versions.into_iter().map(|file| file.path) {
            let storage = storage_with(&files, PATH);
            // What recovery writes before it is read is in memory alone.
            let is_there = storage.exists(&path).unwrap();
            if !is_there || !set_version(&storage, &path, NEWER) {
                continue;
            }
            let stem = path.file_name().unwrap().to_str().unwrap();
            let stem = stem.split('-').next().unwrap();
            kinds.insert(if stem.ends_with(".wal") { "wal".into() } else { stem.to_owned() });
            let what = format!("{name}: {}", path.display());
            let before = bytes_of(&storage);
            match read_all(&storage, name, Access::ReadOnly) {
                Err(error) => assert_refused(&error, &path, &what),
                Ok(db) => {
                    assert!(!is_read_when_opened(&path), "{what}: it was opened");
                    assert_refused(&db.file_versions().unwrap_err(), &path, &what);
                    let report = db.check().unwrap();
                    let is_said = report.problems.iter().any(|said| {
                        said.contains("version") && said.contains("2 at most, found 3")
                    });
                    // Log that is kept to be read is none that recovery needs.
                    let is_kept_log = path.extension().is_some_and(|end| end == "wal");
                    assert!(is_said || is_kept_log, "{what}: {:?}", report.problems);
                }
            }
            assert!(bytes_of(&storage) == before, "{what}: something was written");
        }
    }
    let all = ["MANIFEST", "index", "seg", "tables", "tbl", "val", "wal"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

/// The manifest is what stands for the format of the whole: see `docs/format/versions.md`.
#[test]
fn nothing_is_changed_where_the_manifest_is_newer() {
    for name in DATABASES {
        let files = files_of(FORMAT_VERSION, name);
        let storage = storage_with(&files, PATH);
        let manifests = files.keys().filter(|file| file.starts_with("MANIFEST-"));
        let path = Path::new(PATH).join(manifests.max().unwrap());
        assert!(set_version(&storage, &path, NEWER));
        let before = bytes_of(&storage);
        let error = read_all(&storage, name, Access::ReadWrite).unwrap_err();
        assert_refused(&error, &path, name);
        let lock = Path::new(PATH).join("LOCK");
        let others = |files: &std::collections::BTreeMap<PathBuf, Vec<u8>>| {
            let mut files = files.clone();
            files.remove(&lock);
            files
        };
        assert!(others(&bytes_of(&storage)) == others(&before), "{name}");
    }
}

#[test]
fn a_newer_keyring_is_refused() {
    const SLOT: usize = 64 << 10;
    let storage = storage_with(&files_of(FORMAT_VERSION, "sealed"), PATH);
    let path = Path::new(PATH).join("KEYRING");
    let bytes = storage.read_file(&path).unwrap();
    for slot in 0..2 {
        let at = slot * SLOT;
        let mut new = bytes[at..at + SLOT].to_vec();
        new[16..20].copy_from_slice(&5_u32.to_le_bytes());
        let tag = u64::from_le_bytes(*b"LITHEKEY");
        let sum = checksum(&new[16..], tag, at as u64);
        new[8..16].copy_from_slice(&sum.to_le_bytes());
        storage.overwrite(&path, at as u64, &new).unwrap();
    }
    let error = read_all(&storage, "sealed", Access::ReadWrite).unwrap_err();
    let Error::FormatVersion { file, found: 5, known: 1 } = error else { panic!("{error}") };
    assert_eq!(file, path);
}

/// So that nothing that the tests above patch is patched wrongly.
#[test]
fn the_version_that_a_file_has_is_no_reason_to_refuse_it() {
    for name in DATABASES {
        let files = files_of(FORMAT_VERSION, name);
        let storage = storage_with(&files, PATH);
        let before = bytes_of(&storage);
        let mut count = 0;
        for path in before.keys() {
            let is_sealed = ["sealed", "passphrase"].contains(&name);
            count += u32::from(set_version(&storage, path, if is_sealed { 2 } else { 1 }));
        }
        assert!(count > 3);
        assert!(bytes_of(&storage) == before, "{name}: what was there is what is put there");
        let db = read_all(&storage, name, Access::ReadOnly).unwrap();
        describe(&db);
    }
}
