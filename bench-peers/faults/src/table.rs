//! The table: one row an engine, counts with their shares.

use crate::args::Args;
use crate::cases::{Case, Cases, Flip, FullCase, SyncCase, Verdict};
use crate::script::Ending;
use std::fmt::Write as _;

/// Columns behind the engine's.
const COLUMNS: [&str; 19] = [
    "flips, closed: served wrong",
    "said to be missing",
    "refused at open, at read",
    "right",
    "crash, hang",
    "flips, killed: served wrong",
    "said to be missing",
    "refused at open, at read",
    "right",
    "crash, hang",
    "failed sync: runs",
    "commits acknowledged behind it",
    ".. and while it failed",
    "acknowledged and gone",
    "full disk: runs",
    "reads right, wrong, refused",
    "deletions",
    "writing resumed",
    "acknowledged and gone",
];

const LEGEND: &str = "\
- *Flips*: one bit of one file, in blocks of 512 bytes with something in them; the store is opened \
and everything read, key by key, from the front and from the back. The worst answer counts: \
*served wrong* is a value or an entry that was never written there, *missing* an entry that was \
and is said not to be, both without an error; *right* is a bit that says nothing.
- *Closed*: closed in order. *Killed*: the process was killed with a log that is synced and not \
flushed; every entry was acknowledged as durable, so none may be missing.
- *Failed sync*: 300 commits, each synced, one call of `fsync`, `fdatasync`, `msync` or `syncfs` \
giving EIO once. *Runs*: in how many something was acknowledged behind it, of all. What is *gone* \
was looked for when the process had been killed, with the page cache as it was: behind a real \
failure the pages that could not be written are gone as well.
- *Full disk*: a file system in memory, written to until a commit is refused; 20 further writes, \
reads and 200 deletions; then it is made twice as large, and writing tried for ten seconds, \
without opening the store anew. *Resumed*: in how many runs, and after how many milliseconds at \
most.
";

/// The page.
pub fn page(args: &Args, cases: &Cases) -> String {
    let mut page = format!(
        "# Faults\n\nLitheDB `{}`, {}, memory {}, seed {}. Every case is in `cases.jsonl`; `faults \
         --engines ENGINE --parts PART --seed {} --case N` runs one again.\n\n| | {} |\n|---|{}\n",
        programs::revision(),
        lithe_bench::machine(),
        args.memory,
        args.seed,
        args.seed,
        COLUMNS.join(" | "),
        "---:|".repeat(COLUMNS.len()),
    );
    for about in &cases.engines {
        page += &row(&about.engine, &about.version, &cases.cases);
    }
    let _ = write!(page, "\n{LEGEND}"); // A string takes everything.
    for (engine, part, why) in &cases.skipped {
        let _ = writeln!(page, "- Not run: {part} of {engine}: {why}.");
    }
    page += &zeros(cases);
    page
}

fn row(engine: &str, version: &str, cases: &[Case]) -> String {
    let own = || cases.iter().filter(|case| case.engine() == engine);
    let flips = own().filter_map(|case| match case {
        Case::Flip(flip) => Some(flip),
        _ => None,
    });
    let flips: Vec<&Flip> = flips.collect();
    let syncs = own().filter_map(|case| match case {
        Case::Sync(sync) => Some(sync),
        _ => None,
    });
    let syncs: Vec<&SyncCase> = syncs.collect();
    let fulls = own().filter_map(|case| match case {
        Case::Full(full) => Some(full),
        _ => None,
    });
    let fulls: Vec<&FullCase> = fulls.collect();
    let mut cells = vec![format!("{engine} {version}")];
    for ending in [Ending::Closed, Ending::Killed] {
        cells.extend(flip_cells(&flips, ending));
    }
    cells.extend(sync_cells(&syncs));
    cells.extend(full_cells(&fulls));
    format!("| {} |\n", cells.join(" | "))
}

/// A count and its share.
fn share(count: usize, all: usize) -> String {
    match (count, all) {
        (_, 0) => "-".into(),
        (0, _) => "0".into(),
        _ => format!("{count} ({:.1} %)", count as f64 * 100.0 / all as f64),
    }
}

fn flip_cells(flips: &[&Flip], ending: Ending) -> Vec<String> {
    let flips: Vec<_> =
        flips.iter().filter(|flip| flip.ending == ending && !flip.is_in_zeros).collect();
    let count = |verdict: Verdict| flips.iter().filter(|flip| flip.verdict == verdict).count();
    let one = |verdict: Verdict| share(count(verdict), flips.len());
    let two = |first: Verdict, second: Verdict| format!("{}, {}", one(first), one(second));
    vec![
        one(Verdict::Wrong),
        one(Verdict::Missing),
        two(Verdict::RefusedAtOpen, Verdict::RefusedAtRead),
        one(Verdict::Right),
        two(Verdict::Crash, Verdict::Hang),
    ]
}

fn sync_cells(syncs: &[&SyncCase]) -> Vec<String> {
    let struck: Vec<_> = syncs.iter().filter(|sync| sync.strike.is_some()).collect();
    let gone = |sync: &SyncCase| match &sync.reading {
        Some(reading) => reading.wrong + reading.missing + reading.refused,
        None => sync.acknowledged,
    };
    if struck.is_empty() {
        return vec!["-".to_owned(); 4];
    }
    let behind = struck.iter().filter(|sync| sync.acknowledged_behind > 0).count();
    vec![
        format!("{behind} of {}", struck.len()),
        struck.iter().map(|sync| sync.acknowledged_behind).sum::<u64>().to_string(),
        struck.iter().map(|sync| sync.acknowledged_meanwhile).sum::<u64>().to_string(),
        struck.iter().map(|sync| gone(sync)).sum::<u64>().to_string(),
    ]
}

fn full_cells(fulls: &[&FullCase]) -> Vec<String> {
    if fulls.is_empty() {
        return vec!["-".to_owned(); 5];
    }
    let readings: Vec<_> = fulls.iter().filter_map(|full| full.read_when_full.as_ref()).collect();
    let right = readings.iter().map(|reading| reading.right).sum::<u64>();
    let wrong = readings.iter().map(|reading| reading.wrong + reading.missing).sum::<u64>();
    let refused = readings.iter().map(|reading| reading.refused).sum::<u64>();
    let deleted = fulls.iter().map(|full| full.deleted).sum::<u64>();
    let not_deleted = fulls.iter().map(|full| full.not_deleted).sum::<u64>();
    let resumed: Vec<u64> = fulls.iter().filter_map(|full| full.resumed_after_ms).collect();
    let gone = |full: &FullCase| match &full.reading {
        Some(reading) => reading.wrong + reading.missing + reading.refused,
        None => full.acknowledged,
    };
    let within = match resumed.iter().max() {
        Some(most) => format!(", {most} ms"),
        None => String::new(),
    };
    let ended = fulls.iter().filter(|full| full.ended.is_some() || full.is_late).count();
    let ended = match ended {
        0 => String::new(),
        count => format!(" ({count} ended or hung)"),
    };
    vec![
        format!("{}{ended}", fulls.len()),
        format!("{right}, {wrong}, {refused}"),
        format!("{deleted} of {}", deleted + not_deleted),
        format!("{} of {}{within}", resumed.len(), fulls.len()),
        fulls.iter().map(|full| gone(full)).sum::<u64>().to_string(),
    ]
}

/// What flips in blocks of zeros have done, in one sentence an engine.
fn zeros(cases: &Cases) -> String {
    let mut text = String::new();
    for about in &cases.engines {
        let flips = cases.cases.iter().filter_map(|case| match case {
            Case::Flip(flip) if flip.engine == about.engine && flip.is_in_zeros => Some(flip),
            _ => None,
        });
        let flips: Vec<&Flip> = flips.collect();
        if flips.is_empty() {
            continue;
        }
        let right = flips.iter().filter(|flip| flip.verdict == Verdict::Right).count();
        let silent = flips.iter().filter(|flip| flip.verdict <= Verdict::Missing).count();
        let _ = writeln!(
            text,
            "- In blocks of zeros, {}: {} flips, {right} said nothing, {silent} were served wrong \
             or missing.",
            about.engine,
            flips.len(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::watch::Strike;
    use clap::Parser;
    use programs::EngineAbout;

    fn flip(verdict: Verdict, ending: Ending, is_in_zeros: bool) -> Case {
        Case::Flip(Flip {
            engine: "x".into(),
            case: 1,
            ending,
            file: "f".into(),
            offset: 0,
            bit: 0,
            is_in_zeros,
            verdict,
            what: String::new(),
        })
    }

    #[test]
    fn counts_and_shares_come_into_their_columns() {
        let mut cases = Cases::default();
        cases.engines.push(EngineAbout {
            engine: "x".into(),
            version: "7".into(),
            ..EngineAbout::default()
        });
        for verdict in [Verdict::Wrong, Verdict::Right, Verdict::Right, Verdict::RefusedAtRead] {
            cases.cases.push(flip(verdict, Ending::Closed, false));
        }
        cases.cases.push(flip(Verdict::Crash, Ending::Killed, false));
        cases.cases.push(flip(Verdict::Missing, Ending::Killed, true));
        let strike = Strike { call: "fsync", file: String::new(), command: 3 };
        cases.cases.push(Case::Sync(SyncCase {
            engine: "x".into(),
            case: 1,
            strike: Some(strike),
            acknowledged: 9,
            acknowledged_meanwhile: 1,
            acknowledged_behind: 5,
            refused: 0,
            error: String::new(),
            ended: None,
            is_late: false,
            not_reopened: None,
            reading: Some(Reading { missing: 2, ..Reading::default() }),
        }));
        cases.cases.push(Case::Full(FullCase {
            engine: "x".into(),
            deleted: 3,
            not_deleted: 1,
            resumed_after_ms: Some(40),
            read_when_full: Some(Reading { right: 8, ..Reading::default() }),
            reading: Some(Reading::default()),
            ..FullCase::default()
        }));
        cases.skip("y", "Full", "no right to mount");
        let page = page(&Args::try_parse_from(["faults"]).unwrap(), &cases);
        let row = page.lines().find(|line| line.starts_with("| x 7 |")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let wanted = [
            "",
            "x 7",
            "1 (25.0 %)",
            "0",
            "0, 1 (25.0 %)",
            "2 (50.0 %)",
            "0, 0",
            "0",
            "0",
            "0, 0",
            "0",
            "1 (100.0 %), 0",
            "1 of 1",
            "5",
            "1",
            "2",
            "1",
            "8, 0, 0",
            "3 of 4",
            "1 of 1, 40 ms",
            "0",
            "",
        ];
        assert_eq!(cells, wanted);
        let head = page.lines().find(|line| line.starts_with("| |")).unwrap();
        assert_eq!(head.split('|').count(), cells.len());
        assert!(page.contains("Not run: Full of y: no right to mount."));
        assert!(page.contains("In blocks of zeros, x: 1 flips, 0 said nothing, 1 were"));
    }
}
