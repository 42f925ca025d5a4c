//! The page in Markdown, with its tables and charts: made from the results alone.

mod charts;
mod tables;
mod texts;
mod trade;

use crate::judge::disagreements;
use crate::results::{Head, Results, Safety};
use lithe_bench::Result;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The page.
pub const FILE: &str = "benchmarks.md";
/// Beside the page: figures and charts.
pub const DATA_DIR: &str = "benchmarks";
/// Commentary that people wrote.
const NOTES: &str = include_str!("../../../notes.md");

/// Writes the page and its charts below `out`.
///
/// # Errors
/// If a file cannot be written.
pub fn write(results: &Results, out: &Path) -> Result<()> {
    let mut charts = Vec::new();
    for chart in charts::all(results) {
        let file = format!("{DATA_DIR}/{}.svg", chart.name);
        fs::write(out.join(&file), &chart.svg)?;
        charts.push((chart, file));
    }
    let mut page = format!("# Benchmarks\n\n{}\n", texts::INTRODUCTION);
    page += &format!("{}\n", NOTES.trim());
    page += &errors(results);
    page += &format!("\n## Summary\n\n{}\n{}", texts::SUMMARY, tables::summary(results));
    for workload in tables::workloads(results) {
        write!(page, "\n## {workload}\n\n{}\n", texts::about(&workload))?;
        for (chart, file) in charts.iter().filter(|(chart, _)| chart.workload == workload) {
            write!(page, "\n![{}]({file})\n", chart.title)?;
        }
        let table = match workload.as_str() {
            trade::WORKLOAD => trade::table(results),
            _ => tables::of_workload(results, &workload),
        };
        write!(page, "\n{table}")?;
    }
    page += &gaps(results);
    page += &how(results);
    Ok(fs::write(out.join(FILE), page)?)
}

fn errors(results: &Results) -> String {
    let told = disagreements(&results.figures);
    if told.is_empty() {
        return "\nAll engines returned the same entries in every workload: their checksums and \
                counts agree.\n"
            .into();
    }
    let lines: String = told.iter().map(|what| format!("- {what}\n")).collect();
    format!("\n## Errors\n\nEngines returned different entries:\n\n{lines}")
}

fn gaps(results: &Results) -> String {
    if results.gaps.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n## What is missing\n\n| engine | step | why |\n|---|---|---|\n");
    for gap in &results.gaps {
        let step = if gap.step.is_empty() { "all" } else { &gap.step };
        let why = gap.why.replace('|', "\\|");
        text += &format!("| {} | {step} | {why} |\n", gap.engine);
    }
    text
}

fn how(results: &Results) -> String {
    let Head { machine, revision, compilers, keys, divisor, repeat, once, memory, cap_s, cap_gib } =
        &results.head;
    let mut text = format!("\n## Machine and method\n\n- Machine: {machine}.\n");
    text += &format!("- LitheDB at `{revision}`.\n");
    compilers.iter().for_each(|compiler| text += &format!("- {compiler}\n"));
    let except = match once.as_slice() {
        [] => String::new(),
        once => format!(", but for {} (once)", once.join(", ")),
    };
    text += &format!(
        "- The large store has {keys} keys; all other counts are {}.\n- Each step ran {repeat} \
         times{except}, the engines in turn; figures are medians.\n- Memory for each engine: {} bytes. A \
         step was ended after {cap_s} s, or at {cap_gib} GiB of stores.\n",
        if *divisor == 1 { "full".into() } else { format!("divided by {divisor}") },
        memory.join(", and for what reads the large store once more "),
    );
    text += &format!("\n{}\n\n## Engines\n\n{}", texts::METHOD, ENGINES_HEAD);
    for engine in &results.engines {
        let counted = match engine.safety {
            Safety::Kill => "yes".into(),
            Safety::Sync => format!("not for unsynced writes: {}", engine.why),
            Safety::None => format!("no: {}", engine.why),
        };
        text += &format!(
            "| {} | {} | {} | {} | {counted} | {} |\n",
            engine.engine,
            engine.version,
            engine.language,
            engine.structure,
            engine.settings.join(" "),
        );
    }
    text
}

const ENGINES_HEAD: &str = "| engine | version | language | structure | counts as a rival | \
                            settings |\n|---|---|---|---|---|---|\n";

#[cfg(test)]
mod tests;
