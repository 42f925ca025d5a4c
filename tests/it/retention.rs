//! Keyspaces that keep some of their versions, against a list of all that ever happened.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use lithedb::base::ManualClock;
use lithedb::storage::MemoryStorage;
use lithedb::{Background, Db, Durability, Error, KeyVersion, KeyspaceOptions, SeqNo, WriteBatch};

use crate::history::{Bench, Model, Value, options, told, until_of};
use crate::support::{assert_sound, step_to_rest};

/// A bench, and how many versions of a key it is to keep.
struct Kept {
    bench: Bench,
    versions: Option<u32>,
}

type Told = Vec<(SeqNo, Option<Value>)>;

impl Kept {
    fn new(seed: u64, options: KeyspaceOptions) -> Kept {
        let versions = options.keep_versions;
        Kept { bench: Bench::with(seed, options), versions }
    }

    fn from(&self) -> Option<SeqNo> {
        self.bench.k.kept_from()
    }

    /// Whether all keys are known as of that moment.
    fn is_whole(&self, at: SeqNo) -> bool {
        self.from().is_some_and(|from| at >= from)
    }

    /// Whether this key is.
    fn is_known(&self, key: &[u8], at: SeqNo) -> bool {
        let newer = |model: &Model| {
            model.versions.get(key).map_or(0, |all| all.keys().filter(|s| **s > at).count())
        };
        let changes = newer(&self.bench.model);
        self.is_whole(at) || self.versions.is_some_and(|versions| changes < versions as usize)
    }

    fn step(&mut self) {
        let bench = &mut self.bench;
        match bench.random.below(100) {
            0..60 => bench.write(),
            60..62 => bench.ingest(),
            62..72 => bench.clock.advance(Duration::from_millis(bench.random.below(60))),
            72..77 => bench.db.flush().unwrap(),
            77..82 => drop(bench.db.step().unwrap()),
            82 => step_to_rest(&bench.db),
            83..85 => bench.db.compact().unwrap(),
            85 => bench.k.compact::<&[u8]>(..).unwrap(),
            86 => drop(bench.db.vacuum().unwrap()),
            87 => bench.reopen(),
            88 | 89 => self.hold(),
            90..93 => self.check_gets(),
            93..96 => self.check_history(),
            96..98 => self.check_by_stamp(),
            _ => self.check_scans(),
        }
    }

    /// Holds a moment that is whole when it is taken.
    fn hold(&mut self) {
        let at = self.bench.stamp();
        if self.is_whole(at) {
            let past = self.bench.db.snapshot_at(at).unwrap();
            self.bench.held.push((at, at.millis(), past));
        }
        if self.bench.held.len() > 3 {
            self.bench.held.remove(0);
        }
    }

    fn check_gets(&mut self) {
        for _ in 0..30 {
            let (key, at) = (self.bench.key(), self.bench.stamp());
            let expected = self.bench.model.get(&key, at, at.millis().max(1));
            let expected = expected.map(|(_, value)| value.0.clone());
            let whole = self.is_whole(at);
            let known = self.is_known(&key, at);
            let past = self.bench.db.snapshot_at(at).unwrap();
            for found in [self.bench.k.get_at(&key, at), past.get(&self.bench.k, &key)] {
                match found {
                    Ok(found) => {
                        assert_eq!(found.as_deref(), expected.as_deref(), "{key:?} {at}");
                    }
                    Err(Error::BeyondRetention { keyspace, kept_from, versions }) => {
                        assert!(!known, "{key:?} {at}");
                        assert_eq!((&*keyspace, versions), ("k", self.versions));
                        assert_eq!(kept_from, self.from());
                        assert!(!whole);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// The versions that have to be kept, newest first.
    fn kept_versions(&self, key: &[u8]) -> Told {
        let mut kept: Told = Vec::new();
        let all = self.bench.model.versions.get(key);
        let mut next: Option<SeqNo> = None;
        for (stamp, value) in all.into_iter().flatten().rev() {
            let by_number = self.versions.is_some_and(|versions| kept.len() < versions as usize);
            let by_time = |since: SeqNo| self.from().is_some_and(|from| since > from);
            // A deletion, or what expired, in front of the bound.
            let until = value.as_ref().map_or(0, |(_, until)| *until);
            let is_over = |from: SeqNo| *stamp < from && until <= from.millis();
            let is_forgotten = self.from().is_some_and(is_over);
            if !by_number && (next.is_some_and(|next| !by_time(next)) || is_forgotten) {
                break;
            }
            next = Some(*stamp);
            kept.push((*stamp, value.clone()));
        }
        kept
    }

    fn check_history(&mut self) {
        for _ in 0..10 {
            let key = self.bench.key();
            let all = self.bench.model.versions.get(&key).into_iter().flatten().rev();
            let all: Told = all.map(|(stamp, value)| (*stamp, value.clone())).collect();
            let kept = self.kept_versions(&key);
            let found = told(self.bench.k.history(&key, ..).unwrap());
            assert!(all.starts_with(&found), "{key:?}: {found:?} of {all:?}");
            assert!(found.starts_with(&kept), "{key:?}: {found:?} and not {kept:?}");
            let mut oldest_first = told(self.bench.k.history_from_oldest(&key, ..).unwrap());
            oldest_first.reverse();
            assert_eq!(oldest_first, found);
            let (a, b) = (self.bench.stamp(), self.bench.stamp());
            let between = a.min(b)..=a.max(b);
            let inside = found.iter().filter(|(stamp, _)| between.contains(stamp));
            let inside: Told = inside.cloned().collect();
            assert_eq!(told(self.bench.k.history(&key, between.clone()).unwrap()), inside);
            let mut again = told(self.bench.k.history_from_oldest(&key, between).unwrap());
            again.reverse();
            assert_eq!(again, inside);
        }
    }

    fn check_by_stamp(&mut self) {
        let (a, b) = (self.bench.stamp(), self.bench.stamp());
        let (first, last) = (a.min(b), a.max(b));
        let found = self.bench.k.versions_by_stamp(first..=last);
        let Some(from) = self.from() else {
            assert!(matches!(found, Err(Error::InvalidArgument { .. })));
            return;
        };
        if first < from {
            assert!(matches!(found, Err(Error::BeyondRetention { .. })), "{first} {from}");
            return;
        }
        let told = |version: Result<KeyVersion, Error>| {
            let version = version.unwrap();
            let value = version.value.map(|value| (value.to_vec(), until_of(version.expiry)));
            (version.seqno, version.key.to_vec(), value)
        };
        let mut expected = Vec::new();
        for (key, versions) in &self.bench.model.versions {
            let versions = versions.range(from..);
            expected.extend(versions.map(|(stamp, value)| (*stamp, key.clone(), value.clone())));
        }
        expected.sort();
        let all: Vec<_> = self.bench.k.versions_by_stamp(..).unwrap().map(told).collect();
        assert_eq!(all, expected);
        expected.retain(|version| (first..=last).contains(&version.0));
        assert_eq!(found.unwrap().map(told).collect::<Vec<_>>(), expected);
    }

    fn check_scans(&mut self) {
        let at = self.bench.stamp();
        let past = self.bench.db.snapshot_at(at).unwrap();
        if self.is_whole(at) {
            self.bench.check_moment(at, at.millis().max(1), &past);
        }
        let rows = self.bench.model.rows(at, at.millis().max(1));
        for backward in [false, true] {
            let mut walk = past.iter(&self.bench.k);
            let mut found = Vec::new();
            let failure = loop {
                match if backward { walk.next_back() } else { walk.next() } {
                    None => break None,
                    Some(Ok(entry)) => {
                        found.push((entry.key.to_vec(), entry.value.to_vec(), entry.seqno));
                    }
                    Some(Err(error)) => break Some(error),
                }
            };
            let mut expected = rows.clone();
            if backward {
                expected.reverse();
            }
            match failure {
                None => assert_eq!(found, expected),
                Some(Error::BeyondRetention { .. }) => {
                    assert!(!self.is_whole(at));
                    assert!(expected.starts_with(&found));
                    let mut unknown = self.bench.model.versions.keys();
                    let mut unknown = unknown.by_ref().filter(|key| !self.is_known(key, at));
                    let turn = if backward { unknown.next_back() } else { unknown.next() };
                    let turn = turn.expect("a key that is not known");
                    let is_before =
                        |key: &[u8]| if backward { key > &**turn } else { key < &**turn };
                    let due = expected.iter().take_while(|(key, ..)| is_before(key)).count();
                    assert!(found.len() >= due, "it fails before its turn, {turn:?}");
                }
                Some(error) => panic!("{error}"),
            }
        }
        for (at, now, past) in self.bench.held.clone() {
            self.bench.check_moment(at, now.max(1), &past);
        }
    }
}

fn run(name: &str, options: &KeyspaceOptions) {
    for seed in 0..6 {
        let mut kept = Kept::new(seed, options.clone());
        for _ in 0..900 {
            kept.step();
        }
        kept.bench.reopen();
        kept.check_gets();
        kept.check_history();
        kept.check_by_stamp();
        kept.check_scans();
        assert_sound(&kept.bench.db);
        println!("{name} {seed}: {:?}", kept.from());
    }
}

#[test]
fn what_is_kept_for_a_time_is_whole_that_far_back() {
    let kept = options().keep_for(Duration::from_millis(300));
    run("for a time", &kept);
    run("for a time, merged", &kept.merge_operator("append"));
}

#[test]
fn what_is_kept_by_number_is_known_that_many_changes_back() {
    run("one", &options().keep_versions(1));
    run("three", &options().keep_versions(3));
    run("one, merged", &options().keep_versions(1).merge_operator("append"));
    run("three, merged", &options().keep_versions(3).merge_operator("append"));
}

#[test]
fn what_is_kept_for_a_time_or_by_number_is_kept_by_either() {
    run("both", &options().keep_for(Duration::from_millis(200)).keep_versions(2));
}

/// Overwrites each of 2000 keys so many times, and deletes every fourth in the end. The last but
/// one commit.
fn overwrite(bench: &mut Bench, times: u32) -> SeqNo {
    let mut before = SeqNo::ZERO;
    for round in 0..=times {
        let mut batch = WriteBatch::new();
        for key in (0..2000u32).filter(|key| round < times || key % 4 == 0) {
            match round < times {
                true => batch.put(&bench.k, key.to_be_bytes(), [round as u8; 30]),
                false => batch.delete(&bench.k, key.to_be_bytes()),
            }
        }
        let stamp = bench.db.write(batch).unwrap();
        before = if round < times { stamp } else { before };
        bench.clock.advance(Duration::from_millis(10));
    }
    before
}

/// Entries and bytes that the archive of the keyspace has.
fn archived(bench: &Bench) -> (u64, u64) {
    let stats = bench.db.stats();
    let archive = stats.keyspaces.iter().find(|of| of.name.contains("versions")).unwrap();
    (archive.entries_estimate, archive.bytes_live)
}

#[test]
fn compaction_gives_back_the_room_of_what_is_not_kept() {
    let mut by_number = Bench::with(1, options().memtable_size(64 << 10).keep_versions(2));
    overwrite(&mut by_number, 20);
    by_number.db.compact().unwrap();
    assert_eq!(archived(&by_number).0, 4000);
    let mut for_a_time = options().memtable_size(64 << 10).keep_for(Duration::from_secs(1));
    for_a_time.value_separation = None;
    let mut for_a_time = Bench::with(1, for_a_time);
    let before = overwrite(&mut for_a_time, 20);
    for_a_time.db.compact().unwrap();
    let (all, bytes) = archived(&for_a_time);
    assert_eq!(all, 2 * (20 * 2000 + 500), "nothing is that long ago: by key and by stamp");
    for_a_time.clock.advance(Duration::from_secs(2));
    for_a_time.db.compact().unwrap();
    let (left, bytes_left) = archived(&for_a_time);
    // It is whole from the last commit on: what that did not delete, and the commit, twice.
    assert!(for_a_time.k.get_at(1u32.to_be_bytes(), before).is_err());
    assert_eq!(left, 1500 + 2 * 500, "of {all}");
    assert!(bytes_left < bytes / 10, "{bytes_left} of {bytes} bytes");
    // What is written goes on, and the present is what it was.
    assert_eq!(for_a_time.k.len().unwrap(), 1500);
    overwrite(&mut for_a_time, 2);
    for_a_time.clock.advance(Duration::from_secs(2));
    for_a_time.k.clear().unwrap();
    for_a_time.clock.advance(Duration::from_secs(2));
    for_a_time.k.put("last", "one").unwrap();
    for_a_time.db.compact().unwrap();
    let (left, _) = archived(&for_a_time);
    assert!(left <= 2, "{left}: deleted keys are forgotten");
    let by_stamp: Result<Vec<_>, _> = for_a_time.k.versions_by_stamp(..).unwrap().collect();
    assert_eq!(by_stamp.unwrap().len(), 1);
    assert_sound(&for_a_time.db);
}

/// Commits of 500 operations each, so many in all.
fn write_many(bench: &Bench, count: u32, operation: impl Fn(&mut WriteBatch, u32)) {
    for from in (0..count).step_by(500) {
        let mut batch = WriteBatch::new();
        (from..from + 500).for_each(|number| operation(&mut batch, number));
        bench.db.write(batch).unwrap();
    }
}

#[test]
fn a_deletion_stays_while_what_it_hides_is_in_another_table() {
    let mut options = options().memtable_size(1 << 20).keep_for(Duration::from_secs(3600));
    options.value_separation = None;
    let bench = Bench::with(1, options);
    // So long that tables of an archive, of 4 MiB, end between a deletion and what it hides.
    let key =
        |number: u32| format!("{:08x}{}", number.wrapping_mul(2_654_435_761), "x".repeat(200));
    write_many(&bench, 40_000, |batch, number| batch.put(&bench.k, key(number), "v"));
    write_many(&bench, 40_000, |batch, number| batch.delete(&bench.k, key(number)));
    bench.db.compact().unwrap();
    bench.clock.advance(Duration::from_secs(7200));
    bench.db.compact().unwrap();
    let now = bench.k.kept_from().unwrap();
    assert_eq!(bench.db.snapshot_at(now).unwrap().iter(&bench.k).count(), 0);
    assert_eq!(bench.k.len().unwrap(), 0);
    assert!(archived(&bench).0 < 40_000 / 10, "most are forgotten");
    assert_sound(&bench.db);
}

/// A table of a flush that ends within the versions of a key sinks alone: the rest of them is in a
/// run above it then.
#[test]
fn a_deletion_stays_while_what_it_hides_is_in_a_newer_run() {
    const VERSIONS: usize = 66_500;
    let mut options = options().memtable_size(256 << 20).keep_for(Duration::from_secs(60));
    options.value_separation = None;
    let clock = Arc::new(ManualClock::at_millis(1_000_000_000));
    let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    let builder = builder.clock(Arc::clone(&clock) as Arc<_>).background(Background::Stepped);
    let builder = builder.durability(Durability::Buffered).memory_budget(1 << 30);
    let db = builder.open("/db").unwrap();
    let k = db.create_keyspace("k", options).unwrap();
    k.put("a", "1").unwrap();
    let value = [7; 1024];
    for _ in 0..VERSIONS {
        k.put("m", value).unwrap();
    }
    let before = k.put("m", "newest").unwrap();
    let deleted = k.delete("m").unwrap();
    k.put("z", "1").unwrap();
    db.flush().unwrap();
    let runs = || {
        let report = db.stats().keyspaces;
        report.iter().find(|of| of.name.contains("versions")).unwrap().runs
    };
    while runs() == 1 {
        assert!(db.step().unwrap(), "a table is moved before the other is rewritten");
    }
    clock.advance(Duration::from_secs(120));
    k.compact(..&b"m"[..]).unwrap();
    assert_eq!(k.get("m").unwrap(), None);
    for at in [deleted, db.snapshot().seqno()] {
        assert!(k.get_at("m", at).ok().flatten().is_none(), "{at}: it was deleted");
    }
    db.compact().unwrap();
    let now = db.snapshot().seqno();
    assert_eq!(k.get_at("m", now).unwrap(), None);
    assert_eq!(db.snapshot_at(now).unwrap().iter(&k).count(), 2);
    assert!(k.get_at("m", before).is_err(), "it is not kept any more");
    assert_sound(&db);
}

#[test]
fn the_last_deletion_is_told_by_stamp() {
    let bench = Bench::with(1, options().keep_for(Duration::from_millis(500)));
    bench.k.put("a", "1").unwrap();
    let deleted = bench.k.delete("a").unwrap();
    bench.clock.advance(Duration::from_secs(2));
    bench.db.compact().unwrap();
    let all: Result<Vec<_>, _> = bench.k.versions_by_stamp(..).unwrap().collect();
    let all: Vec<_> = all.unwrap().into_iter().map(|version| version.seqno).collect();
    assert_eq!(all, [deleted]);
}

#[test]
fn histories_are_whole_while_a_flush_is_under_way() {
    let options = options().memtable_size(16 << 10).keep_versions(1);
    let bench = Bench::with(1, options);
    bench.k.put("a", "1").unwrap();
    bench.db.flush().unwrap();
    let deleted = bench.k.delete("a").unwrap();
    for number in 0..400u32 {
        bench.k.put(format!("b{number}"), [0; 100]).unwrap();
    }
    loop {
        let newest = bench.k.history("a", ..).unwrap().next().unwrap().unwrap();
        assert_eq!((newest.seqno, newest.value), (deleted, None));
        if !bench.db.step().unwrap() {
            break;
        }
        bench.k.compact::<&[u8]>(..).unwrap();
    }
}

#[test]
fn compaction_leaves_nothing_to_whoever_helps() {
    let mut options = options().memtable_size(1 << 20).keep_versions(1);
    options.value_separation = None;
    let bench = Bench::with(1, options);
    for round in 0..3u8 {
        write_many(&bench, 40_000, |batch, number| {
            batch.put(&bench.k, format!("{number:0200}"), [round]);
        });
        // All of it, so that there are tables at the last level.
        bench.db.compact().unwrap();
    }
    write_many(&bench, 40_000, |batch, number| batch.put(&bench.k, format!("{number:0200}"), [9]));
    let go_on = |_: &_| {
        while bench.db.step().unwrap() {}
        ControlFlow::Continue(())
    };
    bench.db.compact_while(go_on).unwrap();
    assert_eq!(archived(&bench).0, 40_000);
    let written = bench.db.compact_while(|_| ControlFlow::Continue(())).unwrap().bytes_written;
    assert_eq!(written, 0, "what was gone through is not gone through again");
}

#[test]
fn what_has_expired_is_forgotten_as_what_was_deleted() {
    let bench = Bench::with(1, options().keep_for(Duration::from_secs(1)));
    for number in 0..1000u32 {
        let life = Duration::from_millis(500);
        bench.k.put_with_ttl(number.to_be_bytes(), "v", life).unwrap();
    }
    bench.db.compact().unwrap();
    assert_eq!(archived(&bench).0, 2000);
    bench.clock.advance(Duration::from_secs(5));
    bench.k.put("last", "one").unwrap();
    bench.db.compact().unwrap();
    assert!(archived(&bench).0 <= 3, "{}", archived(&bench).0);
}

#[test]
fn beyond_what_is_kept_an_error_says_what_is() {
    let bench = Bench::with(1, options().keep_for(Duration::from_millis(500)));
    let first = bench.k.put("a", "1").unwrap();
    bench.clock.advance(Duration::from_millis(100));
    let held = bench.db.snapshot_at(first).unwrap();
    bench.k.put("a", "2").unwrap();
    bench.clock.advance(Duration::from_millis(2000));
    let error = bench.k.get_at("a", first).unwrap_err();
    let from = bench.k.kept_from().unwrap();
    assert!(from > first, "{from}");
    let text = format!("does not go back so far: it keeps what there was from {from} on");
    assert!(error.to_string().contains(&text), "{error}");
    assert!(matches!(error, Error::BeyondRetention { versions: None, .. }));
    assert!(bench.k.restore("a", first).is_err() && bench.k.get_entry_at("a", first).is_err());
    assert!(bench.k.differences::<&str>(.., first, from).is_err());
    // A snapshot of then shows what it showed, also when the versions are gone.
    bench.db.compact().unwrap();
    assert_eq!(held.get(&bench.k, "a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(bench.k.get_at("a", first).is_err());
}
