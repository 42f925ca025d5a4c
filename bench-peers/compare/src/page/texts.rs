//! What the page says besides figures: how they came about, and what each means.

pub const INTRODUCTION: &str = "\
LitheDB beside other embedded stores, on the same data and the same operations, in one run on one
machine. This page is written by `just bench-peers`; only ratios between figures of one run mean
anything. The workloads are those of `lithe bench` (`crates/bench`), the engines are set up in
`bench-peers`.
";

pub const SUMMARY: &str = "\
Times as good: above 1, LitheDB is ahead. The best rival is the best of those that give what the
row is about: none that a crash can cost what was synced, and in rows of unsynced writes none that
loses them when its process is killed. Both are shown in the tables below, marked †.
";

pub const METHOD: &str = "\
- Each step of each engine is a process of its own. The clock runs only while the engine works:
  keys and values are made before, and checked after. With several threads, a rate is all
  operations over the time of the busiest thread.
- Before the first figure of W4, W5 and W6, as many gets or seeks go uncounted: caches are then as
  full as they get.
- A write without sync survives the end of the process where the engine can do that; one with sync
  survives the machine.
- Everything an engine returns is checked: by checksums over scans, and byte by byte. A step with a
  wrong answer has no figures.
- Write amplification is what the process sent to the disk over the bytes of keys and values. The
  size of a directory is what the file system gave it.
- In brackets: how many times as good as the best rival, which is bold. † does not count as a rival
  in this row. ‡ is a figure from a smaller store: the engine was too slow, or its files too large,
  to load all keys within the limits. – is not measured: the engine does not have the operation, or
  it failed (*What is missing*).
- Compression is off in every engine that lets it be.
- A step that took an engine longer than 45 s was run in one round only, and what needs its store
  with it.
";

/// What the figures of each workload mean.
const ABOUT: &[(&str, &str)] = &[
    (
        "W1",
        "100,000 entries with keys and values of 21 bytes. In batches of 1000 with one sync at \
             the end, inside the time; and as single puts without sync.",
    ),
    (
        "W2",
        "Scans of everything, key and value touched. The small store is that of W1, the large \
             one that of W3. Cold is a new process after the page cache was dropped; warm the \
             median of further passes; then backwards, and with 10,000 writes just before.",
    ),
    (
        "W3",
        "Load of the large store: keys of 16 bytes, values of 100, in batches of 1000, one \
             sync at the end, inside the time. Random and ascending. What it cost is taken after \
             the store was closed.",
    ),
    (
        "W4",
        "A million gets on the large store, the value copied out: uniform and zipf, on one and \
             on two threads, on one snapshot, and of keys that are not there.",
    ),
    (
        "W5",
        "Seek to a key of the large store and read the next 50 entries; with a fresh view for \
             each seek, and all on one view.",
    ),
    (
        "W6",
        "YCSB on the large store, a million operations each on two threads, writes without \
             sync. A: half updates; B: 5 % updates; C: reads; D: reads of the latest, 5 % inserts; \
             E: scans of up to 100, 5 % inserts; F: half read-modify-writes.",
    ),
    ("W7", "Puts of 116 bytes, each durable before it returns: 1 thread, and 8 threads."),
    (
        "W8",
        "Durable transactions of 1, 100, 1000 and 10,000 entries, each on a fresh store; then \
             uniform gets on stores of three sizes.",
    ),
    ("W9", "500,001 single puts without sync, then 50,000 gets that hit, and as many that miss."),
    (
        "W10",
        "20,000 values of 16 KiB in batches of 16 with one sync, then as many random reads: by \
             default, and with values apart from their keys (value log, blob files) where the \
             engine has that.",
    ),
    (
        "W11",
        "As many uniform random overwrites of the large store as it has keys, one sync at the \
             end, inside the time. Sizes while it runs, and at the end, after compaction or vacuum \
             where the engine has one.",
    ),
    (
        "W12",
        "Opening the large store after a clean close, cold and warm; and after `kill -9` in \
             the middle of a load without syncs: the time, and which share of the acknowledged \
             entries is there.",
    ),
    ("W13", "Lines of text as keys and values, in batches of 1000 with one sync."),
    (
        "W14",
        "Load of a million sorted entries, count of the 10 % in the middle by a scan, and \
             their removal (in one operation where the engine has it, else key by key).",
    ),
    (
        "W15",
        "5000 zipf gets a second, while another thread loads random keys as fast as it can. \
             Latency counts from when a get was due, so that a stall shows in all gets behind it.",
    ),
    (
        "W17",
        "What the tables of Roots read, on stores of three sizes that were opened anew: gets, \
             as many further gets, drawn anew, gets of 1000 keys at a time on one view, scans of \
             the square root and of a sixteenth of the entries; and large values, each put durably, \
             then read out of a store that was opened anew.",
    ),
    (
        "Trade",
        "LitheDB over its option `consolidation_pace`: how much dead data it tolerates before it \
             rewrites. A fresh store for each setting is loaded and then overwritten as in W11; the \
             overwrites pause for gets and short scans, which so meet the store as it is while it is \
             written to. Down and to the left is better.",
    ),
];

/// What the figures of a workload mean.
pub fn about(workload: &str) -> String {
    let words: Vec<&str> = workload.split(' ').collect();
    let number = words
        .iter()
        .rev()
        .find(|word| word.starts_with('W') || **word == "Trade")
        .copied()
        .unwrap_or("");
    let text = ABOUT.iter().find(|(name, _)| *name == number).map_or("", |(_, text)| text);
    let label = match words.split_last() {
        Some((_, ["W16", size])) => format!("At {size} keys. "),
        Some((_, [memory])) => format!("With {memory} of memory. "),
        _ => String::new(),
    };
    format!("{label}{text}")
}
