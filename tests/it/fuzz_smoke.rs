//! Every decoder takes thousands of damaged inputs without a panic or a huge allocation: what
//! `fuzz/` does for hours.

use lithe_sim::allocation::within_reason;
use lithe_sim::corpus::{Corpus, mutate, mutate_edit_records, mutate_wal_records};
use lithe_sim::model::run_bytes;
use lithe_sim::random::Random;
use lithedb::fuzzing;

const INPUT_COUNT: usize = 3000;
/// Whole files take longer.
const FILE_COUNT: usize = 400;

fn feed(samples: &[Vec<u8>], count: usize, door: fn(&[u8])) {
    assert!(!samples.is_empty());
    let mut random = Random::new(1);
    for sample in samples {
        door(sample);
    }
    for number in 0..count {
        let mut bytes = samples[random.index(samples.len())].clone();
        mutate(&mut bytes, &mut random);
        let fed = within_reason(|| {
            door(&bytes);
            Ok(())
        });
        assert_eq!(fed, Ok(()), "input {number}");
    }
}

#[test]
fn blocks_take_any_bytes() {
    feed(&Corpus::collect().unwrap().blocks, INPUT_COUNT, fuzzing::block);
}

#[test]
fn frames_take_any_bytes() {
    feed(&Corpus::collect().unwrap().frames, INPUT_COUNT, fuzzing::frame);
}

#[test]
fn sealed_frames_take_any_bytes() {
    feed(&Corpus::collect().unwrap().frames, INPUT_COUNT, fuzzing::sealed_frame);
}

#[test]
fn files_to_be_salvaged_take_any_bytes() {
    let frames = Corpus::collect().unwrap().frames;
    feed(&[frames.concat()], FILE_COUNT, fuzzing::salvaged_file);
    feed(&frames, INPUT_COUNT, fuzzing::salvaged_file);
}

#[test]
fn slots_of_keyrings_take_any_bytes() {
    feed(&Corpus::collect().unwrap().keyring_slots, INPUT_COUNT, fuzzing::keyring_slot);
}

#[test]
fn lists_of_backups_take_any_bytes() {
    feed(&Corpus::collect().unwrap().backup_lists, INPUT_COUNT, fuzzing::backup_list);
}

#[test]
fn streams_of_backups_take_any_bytes() {
    feed(&Corpus::collect().unwrap().backup_streams, FILE_COUNT, fuzzing::backup_stream);
}

#[test]
fn segments_of_trails_take_any_bytes() {
    feed(&Corpus::collect().unwrap().trail_segments, FILE_COUNT, fuzzing::trail_segment);
}

#[test]
fn tables_and_their_parts_take_any_bytes() {
    let corpus = Corpus::collect().unwrap();
    feed(&corpus.tables, FILE_COUNT, fuzzing::table_file);
    for part in 2..6 {
        assert!(corpus.table_parts.iter().any(|sample| sample[0] == part), "none of kind {part}");
    }
    feed(&corpus.table_parts, INPUT_COUNT, fuzzing::table_parts);
}

#[test]
fn value_files_take_any_bytes() {
    feed(&Corpus::collect().unwrap().value_files, FILE_COUNT, fuzzing::value_file);
}

#[test]
fn index_records_take_any_bytes() {
    feed(&Corpus::collect().unwrap().index_records, INPUT_COUNT, fuzzing::index_record);
}

#[test]
fn commit_records_take_any_bytes() {
    feed(&Corpus::collect().unwrap().commits, INPUT_COUNT, fuzzing::commit_record);
}

#[test]
fn log_files_take_any_bytes() {
    let samples = Corpus::collect().unwrap().wal_files;
    feed(&samples, FILE_COUNT, fuzzing::wal_file);
    let mut random = Random::new(2);
    for _ in 0..FILE_COUNT {
        let mut bytes = samples[0].clone();
        mutate_wal_records(&mut bytes, &mut random);
        fuzzing::wal_file(&bytes);
    }
}

#[test]
fn manifests_take_any_bytes() {
    let samples = Corpus::collect().unwrap().manifests;
    feed(&samples, FILE_COUNT, fuzzing::manifest_file);
    let mut random = Random::new(3);
    for _ in 0..FILE_COUNT {
        let mut bytes = samples[0].clone();
        mutate_edit_records(&mut bytes, &mut random);
        fuzzing::manifest_file(&bytes);
    }
}

#[test]
fn operations_made_of_any_bytes_agree_with_the_model() {
    let mut random = Random::new(4);
    for number in 0..60 {
        let bytes: Vec<u8> = (0..1200).map(|_| random.draw() as u8).collect();
        assert_eq!(run_bytes(&bytes), Ok(()), "input {number}");
    }
}
