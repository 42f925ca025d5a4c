//! What `redis-benchmark` prints, read. Its CSV has no 99.9th percentile, so that this is the
//! report for people:
//!
//! ```text
//! ====== SET ======
//!   ..
//! Latency by percentile distribution:
//! 0.000% <= 0.279 milliseconds (cumulative count 16)
//!   ..
//! 99.902% <= 10.783 milliseconds (cumulative count 19984)
//!   ..
//! Summary:
//!   throughput summary: 181818.19 requests per second
//!   latency summary (msec):
//!           avg       min       p50       p95       p99       max
//!         3.637     0.272     2.871     7.423    10.655    10.791
//! ```
//!
//! Lines of progress stand before and between, each in front of a carriage return. The tests are in
//! `tests/it/served.rs`, as a benchmark's own target has none.

use lithe_bench::{Result, median, wrong};

/// One command of a run, or the medians of several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub command: String,
    /// Requests a second.
    pub rate: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// What at least 99.9 of a hundred did not exceed, by the first line of the table that says so.
    pub p999_ms: f64,
}

/// All commands of a report.
///
/// # Errors
/// If a server has answered with an error, or something is not there.
pub fn read(report: &str) -> Result<Vec<Measured>> {
    let lines: Vec<&str> =
        report.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(error) = lines.iter().find(|line| line.to_lowercase().contains("error")) {
        return wrong(format!("redis-benchmark: {error}"));
    }
    let starts: Vec<usize> = (0..lines.len()).filter(|&at| command(lines[at]).is_some()).collect();
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    let sections = starts.iter().zip(ends).map(|(&start, end)| {
        let command = command(lines[start]).unwrap_or_default();
        read_section(command, &lines[start..end]).ok_or_else(|| {
            format!("redis-benchmark: the report of {command} is not as it is known").into()
        })
    });
    let measured = sections.collect::<Result<Vec<_>>>()?;
    if measured.is_empty() { wrong("redis-benchmark has reported nothing") } else { Ok(measured) }
}

/// What a section is about, by its first line.
fn command(line: &str) -> Option<&str> {
    Some(line.strip_prefix("======")?.strip_suffix("======")?.trim())
}

fn read_section(command: &str, lines: &[&str]) -> Option<Measured> {
    let behind = |prefix: &str| lines.iter().position(|line| line.starts_with(prefix));
    let percentiles = behind("Latency by percentile distribution:")?;
    let p999_ms = lines[percentiles + 1..].iter().map_while(|line| percentile(line));
    let p999_ms = p999_ms.into_iter().find(|(percent, _)| *percent >= 99.9)?.1;
    let rate = lines.iter().find_map(|line| line.strip_prefix("throughput summary:"))?;
    let rate = rate.split_whitespace().next()?.parse().ok()?;
    let summary = behind("latency summary (msec):")?;
    let (names, figures) = (lines.get(summary + 1)?, lines.get(summary + 2)?);
    let figure = |wanted: &str| -> Option<f64> {
        let at = names.split_whitespace().position(|name| name == wanted)?;
        figures.split_whitespace().nth(at)?.parse().ok()
    };
    let (p50_ms, p99_ms) = (figure("p50")?, figure("p99")?);
    Some(Measured { command: command.to_owned(), rate, p50_ms, p99_ms, p999_ms })
}

/// `99.902% <= 10.783 milliseconds ..`: percent and milliseconds.
fn percentile(line: &str) -> Option<(f64, f64)> {
    let (percent, rest) = line.split_once("% <=")?;
    Some((percent.parse().ok()?, rest.split_whitespace().next()?.parse().ok()?))
}

/// Each figure's median over runs of one command; `None` without runs.
pub fn medians(runs: &[&Measured]) -> Option<Measured> {
    let of =
        |figure: fn(&Measured) -> f64| median(&runs.iter().map(|m| figure(m)).collect::<Vec<_>>());
    Some(Measured {
        command: runs.first()?.command.clone(),
        rate: of(|run| run.rate),
        p50_ms: of(|run| run.p50_ms),
        p99_ms: of(|run| run.p99_ms),
        p999_ms: of(|run| run.p999_ms),
    })
}
