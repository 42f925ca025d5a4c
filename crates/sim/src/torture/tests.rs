//! The tool's parts: what goes over the pipe, and what is made of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lithedb::{Durability, SeqNo};

use super::child::{Care, Errand, Mistake};
use super::records::Record;
use crate::diet::Diet;
use crate::digest::Digest;
use crate::finding::{Fault, Finding};
use crate::ops::Farewell;
use crate::timeline::{Change, Found, IndexState, Row, Told, Until};

fn index() -> IndexState {
    let extractor = "value".to_owned();
    IndexState { extractor, is_unique: true, is_ready: false, is_building: true }
}

fn found() -> Found {
    let row = Row { value: b"v\0".as_slice().into(), seqno: SeqNo::from_u64(900), until: Some(7) };
    let mut digest = Digest::default();
    digest.add(b"", &row.value, (row.seqno, row.until));
    Found {
        catalog: BTreeMap::from([("a \u{3b5}".to_owned(), 300)]),
        indexes: BTreeMap::from([((300, "by".to_owned()), index())]),
        now: u64::MAX,
        digests: BTreeMap::from([(300, digest), (4, Digest::default())]),
        rows: BTreeMap::from([(300, BTreeMap::from([(Vec::new(), row)])), (4, BTreeMap::new())]),
    }
}

/// One of each kind.
fn records() -> Vec<Record> {
    let which = (7, "by".to_owned());
    let changes = [(Some(vec![1; 200]), Until::Never), (None, Until::At(9))]
        .into_iter()
        .chain([(Some(Vec::new()), Until::After(1 << 40))])
        .map(|(value, until)| Change { keyspace: 1, key: vec![0xFF; 3], value, until })
        .collect();
    let told = [
        Told::Issued { now: 1 << 41, changes },
        Told::Acknowledged(SeqNo::from_u64(u64::MAX), Durability::Sync),
        Told::Acknowledged(SeqNo::from_u64(1), Durability::Buffered),
        Told::TakenBack,
        Told::Durable,
        Told::CatalogIssued(BTreeMap::from([("x".to_owned(), None), ("y".to_owned(), Some(2))])),
        Told::CatalogAcknowledged(Some(3)),
        Told::CatalogAcknowledged(None),
        Told::CatalogTakenBack,
        Told::IndexMayBecome(which.clone(), vec![None, Some(index())]),
        Told::IndexIs(which, Some(index())),
        Told::CheckpointAskedFor { path: PathBuf::from("/a b/c"), now: 0 },
        Told::CheckpointMade,
        Told::KeyMayBe(2),
        Told::KeyIs(1),
    ];
    let others = [
        Record::Opening,
        Record::Found(Box::new(found())),
        Record::Refused("no".to_owned()),
        Record::NoRoom("no room".to_owned()),
        Record::Wrong(Finding::new(Fault::Hole, "x")),
        Record::Closing,
        Record::Ended,
    ];
    told.into_iter().map(Record::Told).chain(others).collect()
}

#[test]
fn records_come_out_of_the_pipe_as_they_went_in() {
    let bytes: Vec<u8> = records().iter().flat_map(Record::encode).collect();
    let mut pipe = bytes.as_slice();
    for record in records() {
        assert_eq!(Record::read(&mut pipe).unwrap(), Some(Some(record)));
    }
    assert_eq!(Record::read(&mut pipe).unwrap(), None);
}

#[test]
fn a_record_that_was_cut_short_is_not_there() {
    for record in records() {
        let bytes = record.encode();
        for len in 0..bytes.len() {
            assert_eq!(Record::read(&mut &bytes[..len]).unwrap(), None, "{record:?}, {len}");
        }
    }
}

#[test]
fn what_is_no_record_is_told() {
    for bytes in [&[1, 0, 0, 0, 99][..], &[2, 0, 0, 0, 0, 0], &[0xFF; 8], &[2, 0, 0, 0, 2, 99]] {
        assert_eq!(Record::read(&mut &*bytes).unwrap(), Some(None), "{bytes:?}");
    }
}

#[test]
fn an_errand_survives_the_command_line() {
    let errand = Errand {
        path: "/a b/c".into(),
        setup: 4000,
        diet: Diet::Encryption,
        nth: 3,
        seed: u64::MAX,
        op_count: 9,
        farewell: Farewell::Close,
        care: Care::None,
        mistake: Mistake::AcknowledgesEarly,
    };
    let words = errand.to_words();
    assert_eq!(Errand::from_words(&words), Some(errand));
    assert_eq!(Errand::from_words(&words[..4]), None);
}
