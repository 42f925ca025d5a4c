//! One writer and three readers at once.

use super::*;

const READER_COUNT: u64 = 3;

#[derive(Clone, Copy)]
enum Way {
    Forth,
    Back,
}

/// Batch `seqno` writes these keys: new ones, and one that every batch overwrites.
fn batch_keys(seqno: u64, make_key: MakeKey, batch_len: u64) -> Vec<Vec<u8>> {
    let numbers = (seqno - 1) * batch_len..seqno * batch_len;
    let random = |number: u64| SeededEntropy::new(number).next_u64();
    let mut keys: Vec<Vec<u8>> = numbers.map(|number| make_key(random(number), number)).collect();
    keys.push(b"overwritten by each batch".to_vec());
    keys
}

fn check_lookups(
    memtable: &Memtable,
    published: u64,
    random: &SeededEntropy,
    (make_key, batch_len): (MakeKey, u64),
) {
    let seqno = 1 + random.next_u64() % published;
    for key in batch_keys(seqno, make_key, batch_len) {
        let found = memtable.get(&key, SeqNo::from_u64(seqno)).expect("a published key");
        assert_eq!((found.key, found.seqno), (&key[..], SeqNo::from_u64(seqno)));
        assert_eq!(found.value, seqno.to_be_bytes());
        let newest = memtable.get(&key, SeqNo::MAX).expect("a published key");
        assert!(newest.seqno >= SeqNo::from_u64(seqno));
    }
    let absent = random.next_u64().to_be_bytes();
    assert!(memtable.get(&absent[..7], SeqNo::MAX).is_none());
}

/// A cursor shows exactly the batches up to its seqno, in order.
fn check_scan(memtable: &Arc<Memtable>, at: u64, batch_len: u64, way: Way) {
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), SeqNo::from_u64(at));
    let mut count = 0;
    let mut last: Option<Vec<u8>> = None;
    loop {
        match way {
            Way::Forth => cursor.next().unwrap(),
            Way::Back if count == 0 => cursor.seek_last().unwrap(),
            Way::Back => cursor.prev().unwrap(),
        }
        let Some(entry) = cursor.entry() else { break };
        assert!(entry.seqno <= SeqNo::from_u64(at));
        assert_eq!(entry.value, entry.seqno.as_u64().to_be_bytes());
        if let Some(last) = &last {
            let order = match way {
                Way::Forth => last.as_slice().cmp(entry.key),
                Way::Back => entry.key.cmp(last),
            };
            assert!(order.is_lt(), "sorted and unique");
        }
        last = Some(entry.key.to_vec());
        count += 1;
    }
    assert_eq!(count, at * batch_len + 1, "at {at}");
}

/// Batches come at once, or some of them together.
fn run(make_key: MakeKey, batch_count: u64, batch_len: u64) {
    for staged in [1, 7] {
        run_staging(make_key, (batch_count, batch_len), staged);
    }
}

fn run_staging(make_key: MakeKey, (batch_count, batch_len): (u64, u64), staged: u64) {
    let memtable = Arc::new(memtable());
    let published = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..READER_COUNT {
            let (memtable, published, stop) = (&memtable, &published, &stop);
            scope.spawn(move || {
                let random = SeededEntropy::new(reader);
                let mut done = false;
                while !done {
                    done = stop.load(Ordering::Acquire);
                    let at = published.load(Ordering::Acquire);
                    if at == 0 {
                        thread::yield_now();
                        continue;
                    }
                    for _ in 0..3 {
                        check_lookups(memtable, at, &random, (make_key, batch_len));
                    }
                    let way = [Way::Forth, Way::Back][(random.next_u64() % 2) as usize];
                    check_scan(memtable, at, batch_len, way);
                }
            });
        }
        for seqno in 1..=batch_count {
            let keys = batch_keys(seqno, make_key, batch_len);
            let value = seqno.to_be_bytes();
            let batch = keys.iter().map(|key| (&key[..], EntryKind::Value, &value[..]));
            let mut writer = memtable.writer();
            if staged == 1 {
                writer.insert_batch(SeqNo::from_u64(seqno), batch);
            } else {
                writer.stage(SeqNo::from_u64(seqno), batch);
                if seqno % staged != 0 && seqno != batch_count {
                    continue;
                }
                writer.link_staged();
            }
            drop(writer);
            published.store(seqno, Ordering::Release);
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(memtable.entry_count() as u64, batch_count * (batch_len + 1));
}

#[test]
fn readers_see_whole_published_batches_while_random_keys_come() {
    run(|random, _| random.to_be_bytes().repeat(2), 300, 100);
}

#[test]
fn readers_see_whole_published_batches_while_keys_come_in_order() {
    run(|_, number| format!("{number:016}").into_bytes(), 300, 100);
}

#[test]
fn readers_see_whole_published_batches_of_keys_with_changing_prefixes() {
    run(
        |random, number| format!("{}/{random:x}", "table".repeat(number as usize % 4)).into_bytes(),
        600,
        100,
    );
}

#[test]
fn small_tables_hold_under_readers() {
    run(|random, _| random.to_be_bytes().repeat(2), if cfg!(miri) { 12 } else { 100 }, 20);
}
