//! What "Exploring SSTables" found about the parts of a table: two words as the key and two as the
//! value, the size of the file and the time of a lookup, with one part changed at a time.
//!
//! Lookups are of keys that are there, at random; `first` reads its block from the file, `again`
//! has all blocks cached, and so decompressed. Lengths are always variable: what fixed ones would
//! take is counted from the entries.

use lithe_bench::Dice;
use lithedb::{Codec, Db, Durability, KeyspaceOptions, TableIngestMode, TableIngestOptions};

use super::{Asked, Result, Row, Scratch, nanos_each};

/// Records of the small table and of the large one.
const SIZES: [u64; 2] = [700, 1_000_000];
const LOOKUPS: u64 = 100_000;
/// Two bytes for the length of the key, two for that of the value.
const FIXED_LENGTHS: u64 = 4;
/// One byte each below 128.
const VARIABLE_LENGTHS: u64 = 2;

/// A way of writing the same records.
struct Variant {
    name: &'static str,
    options: KeyspaceOptions,
}

fn variants() -> Vec<Variant> {
    let plain = || KeyspaceOptions::lsm().codec(Codec::None).restart_interval(1).filter_bits(0);
    let mut variants = vec![
        Variant { name: "blocks of 4 KiB", options: plain() },
        Variant {
            name: "blocks of 1 MiB (no index to speak of)",
            options: plain().block_size(1 << 20),
        },
        Variant { name: "with prefixes by 16", options: plain().restart_interval(16) },
        Variant {
            name: "with prefixes and a filter",
            options: plain().restart_interval(16).filter_bits(10),
        },
    ];
    for (name, codec) in
        [("with prefixes and LZ4", Codec::Lz4), ("with prefixes and Snappy", Codec::Snappy)]
    {
        variants.push(Variant { name, options: plain().restart_interval(16).codec(codec) });
    }
    variants.push(Variant { name: "with LZ4", options: plain().codec(Codec::Lz4) });
    variants
}

/// Words that sound like the filler text of printers.
fn words() -> Vec<String> {
    const FIRST: [&str; 20] = [
        "ad", "con", "dolo", "e", "fugi", "in", "la", "lo", "mi", "ni", "o", "per", "qua", "re",
        "se", "si", "te", "u", "ve", "volu",
    ];
    const MIDDLE: [&str; 12] =
        ["", "bo", "cu", "ge", "li", "mo", "na", "pta", "ri", "sse", "ten", "vi"];
    const LAST: [&str; 10] = ["a", "am", "at", "em", "is", "nt", "rum", "tem", "tur", "us"];
    let syllables = FIRST.iter().flat_map(|first| {
        MIDDLE.iter().flat_map(move |middle| LAST.map(|last| format!("{first}{middle}{last}")))
    });
    let mut words: Vec<String> = syllables.collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// So many records in the order of their keys.
fn records(count: u64) -> Vec<(String, String)> {
    let words = words();
    let mut dice = Dice(11);
    let mut two = || {
        let mut one = || words[dice.below(words.len() as u64) as usize].as_str();
        [one(), one()].concat()
    };
    let mut records = std::collections::BTreeMap::new();
    while (records.len() as u64) < count {
        records.insert(two(), two());
    }
    records.into_iter().collect()
}

impl Variant {
    fn rows(&self, asked: &Asked, records: &[(String, String)]) -> Result<Vec<Row>> {
        let scratch = Scratch::new(asked, "tables")?;
        let db = Db::builder().memory_budget(1 << 30).durability(Durability::Buffered);
        let db = db.open(&scratch.0)?;
        let keyspace = db.create_keyspace("words", self.options.clone())?;
        let file = scratch.0.join("made");
        let mut writer = keyspace.table_writer(&file)?;
        for (key, value) in records {
            writer.put(key, value)?;
        }
        let size = writer.finish()?.file_bytes;
        let options = TableIngestOptions::default().mode(TableIngestMode::Move);
        keyspace.ingest_tables(&[file], options)?;
        let lookups = |count: u64| {
            nanos_each(count, || {
                let mut dice = Dice(5);
                (0..count).try_for_each(|_| {
                    let (key, value) = &records[dice.below(records.len() as u64) as usize];
                    match keyspace.get(key)?.as_deref() == Some(value.as_bytes()) {
                        true => Ok(()),
                        false => Err(format!("{key} has another value").into()),
                    }
                })
            })
        };
        let first = lookups((records.len() as u64 / 100).max(10))?;
        for (key, _) in records {
            keyspace.get(key)?;
        }
        let again = lookups(LOOKUPS)?;
        db.close()?;
        let name = format!("{} records, {}", records.len(), self.name);
        Ok(vec![
            Row::bytes(format!("{name}: file"), size as f64),
            Row::nanos(format!("{name}: first"), None, first),
            Row::nanos(format!("{name}: again"), None, again),
        ])
    }
}

pub fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in SIZES {
        let records = records(count);
        let bytes: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
        let with = |lengths: u64| bytes as f64 + (count * lengths) as f64;
        rows.push(Row::bytes(format!("{count} records, keys and values"), bytes as f64));
        rows.push(Row::bytes(format!("{count} records, fixed lengths"), with(FIXED_LENGTHS)));
        rows.push(Row::bytes(format!("{count} records, variable ones"), with(VARIABLE_LENGTHS)));
        for variant in variants() {
            rows.extend(variant.rows(asked, &records)?);
        }
    }
    Ok(rows)
}
