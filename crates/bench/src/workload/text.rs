//! W13: lines of text as keys and as values, in the order of the files, in batches of 1000, one
//! sync at the end, inside the time. Empty lines are left out: not every engine takes empty keys.

use crate::clock::{Stopwatch, rate};
use crate::data::entry_checksum;
use crate::engine::{Commit, Engine, Result, Walk, wrong};
use crate::job::Context;
use crate::load::BATCH_LEN;
use crate::records::Records;
use crate::report::Row;
use crate::verify::Seen;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Read;

const STORE: &str = "w13";

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    if context.job.files.is_empty() {
        return wrong("W13 needs text: name one or more with --file");
    }
    let mut text = Vec::new();
    for path in &context.job.files {
        let opened = OpenOptions::new().read(true).open(path);
        let mut file = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        file.read_to_end(&mut text)?;
        if text.last().is_some_and(|&byte| byte != b'\n') {
            text.push(b'\n'); // So that the next file begins a line.
        }
    }
    let lines: Vec<&[u8]> =
        text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    let engine = E::open(&context.fresh_store(STORE)?, context.job.memory)?;
    let (mut watch, mut records) = (Stopwatch::default(), Records::default());
    for batch in lines.chunks(BATCH_LEN as usize) {
        records.clear();
        batch.iter().for_each(|line| records.push(line, line));
        watch.time(|| engine.put_batch(&records, Commit::Buffered))?;
    }
    watch.time(|| engine.sync())?;

    let distinct: BTreeSet<&[u8]> = lines.iter().copied().collect();
    let checksum = distinct.iter().map(|line| entry_checksum(line, line)).sum();
    let expected = Seen { count: distinct.len() as u64, checksum };
    Seen::scan(&mut engine.view()?, Walk::Forward)?.must_be(expected, "W13")?;
    engine.close()?;
    context.remove_store(STORE)?;

    let count = lines.len() as u64;
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    context.report(
        Row::new("W13", "lines of text", rate(count, watch.total()), "ops/s")
            .with("lines", count)
            .with("distinct", expected.count)
            .with("bytes", bytes as u64)
            .with("checksum", checksum),
    );
    Ok(())
}
