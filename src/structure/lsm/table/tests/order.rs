//! Positions in a table.

use super::*;

#[test]
fn ranks_are_those_in_the_map() {
    let (bench, dice) = (Bench::new(), Dice::new(21));
    for options in [small_blocks(), TableOptions { block_size: 40, ..TableOptions::default() }] {
        let model = dice.model(1500);
        let table = bench.written(&options, &model);
        for (rank, key) in model.keys().enumerate() {
            assert_eq!(table.rank(&bench.caches, key).unwrap(), rank as u64);
            for other in neighbours(key) {
                let expected = model.range(..other.clone()).count() as u64;
                assert_eq!(table.rank(&bench.caches, &other).unwrap(), expected, "{other:?}");
            }
        }
        assert_eq!(table.rank(&bench.caches, &[0xFF; 70]).unwrap(), 1500);
    }
}

#[test]
fn estimates_are_near_and_read_nothing() {
    let bench = Bench::new();
    let options = TableOptions { block_size: 60, ..TableOptions::default() };
    let model: Model = (0..5000u32)
        .map(|number| (format!("key{number:05}").into_bytes(), value("some bytes")))
        .collect();
    let table = bench.written(&options, &model);
    assert_eq!(table.entries_in_front(b"key02500"), 0, "it was not read yet");
    assert_eq!(table.entries_in_front(b"kez"), 5000);
    assert_eq!(&*table.anchor_near(2500), b"key00000");
    table.rank(&bench.caches, b"key02500").unwrap();
    let reads = bench.caches.reads();
    let properties = table.properties(&bench.caches).unwrap();
    // Of a partition, about; the last one may be small.
    let most = 5000 / (properties.partitions - 1);
    let mut before = 0;
    let mut anchor_before = table.record.first.clone();
    for (rank, key) in (0u64..).zip(model.keys()) {
        let near = table.entries_in_front(key);
        assert!(near <= rank && rank - near <= most, "{near} for {rank}");
        assert!(near >= before);
        before = near;
        let anchor = table.anchor_near(rank);
        let in_front = model.range(..anchor.to_vec()).count() as u64;
        assert!(in_front <= rank && rank - in_front <= most + 1, "{in_front} for {rank}");
        assert!(anchor >= anchor_before);
        anchor_before = anchor;
    }
    assert_eq!(bench.caches.reads().0, reads.0 + 1, "the properties");
}
