//! Tables: one per workload, and the summary of what the best rival does.

use crate::judge::{OWN, best_rival, counts, times_as_good};
use crate::results::{EngineAbout, Figure, Results};
use lithe_bench::figure as short;

/// Behind the name of an engine that does not count in a row, and of a figure at a smaller size.
const NOT_COUNTED: &str = "†";
const SMALLER: &str = "‡";
/// Figures that say what a workload cost, not how fast it was.
const COSTS: [&str; 2] = ["cpu", "peak memory"];

/// Metrics of a workload, in the order in which they were measured.
pub fn metrics<'a>(results: &'a Results, workload: &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in results.figures.iter().filter(|figure| figure.workload == workload) {
        if !names.contains(&figure.metric.as_str()) {
            names.push(&figure.metric);
        }
    }
    names
}

/// Workloads by number, those with a label after the one without.
pub fn workloads(results: &Results) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for figure in &results.figures {
        if !names.contains(&figure.workload) {
            names.push(figure.workload.clone());
        }
    }
    // Stable: what has the same number stays in the order of the run.
    names.sort_by_key(|name| (number(name), name.contains(' ')));
    names
}

/// `W6` and `1GiB W6` are 6; `W16 1M W3` is 16.
fn number(workload: &str) -> u32 {
    let numbers = workload.split(' ').filter_map(|word| word.strip_prefix('W')?.parse().ok());
    numbers.max().unwrap_or(u32::MAX)
}

/// The figures of one row, by any engine.
pub fn row<'a>(results: &'a Results, workload: &str, metric: &str) -> Vec<&'a Figure> {
    let all = results.figures.iter();
    all.filter(|figure| figure.workload == workload && figure.metric == metric).collect()
}

/// The keys that a row is judged at: those of the engine of interest, or else the most.
fn keys_of(figures: &[&Figure]) -> u64 {
    let own = figures.iter().filter(|figure| figure.engine == OWN).map(|figure| figure.keys).max();
    own.or_else(|| figures.iter().map(|figure| figure.keys).max()).unwrap_or(0)
}

/// An engine's figure in a row: that at the row's size, or else at the largest it managed.
fn of_engine<'a>(figures: &[&'a Figure], engine: &str) -> Option<&'a Figure> {
    let own = figures.iter().copied().filter(|figure| figure.engine == engine);
    own.max_by_key(|figure| figure.keys)
}

/// The table of one workload: a row per metric, a column per engine; each figure with how many
/// times as good as the best rival it is.
pub fn of_workload(results: &Results, workload: &str) -> String {
    let engines: Vec<&EngineAbout> = results
        .engines
        .iter()
        .filter(|about| {
            results.figures.iter().any(|f| f.workload == workload && f.engine == about.engine)
        })
        .collect();
    let mut text = String::from("| | unit |");
    engines.iter().for_each(|about| text += &format!(" {} |", about.engine));
    text += "\n|---|---|";
    text += &"---:|".repeat(engines.len());
    text += "\n";
    for metric in metrics(results, workload) {
        let figures = row(results, workload, metric);
        let best = best_rival(&figures, &results.engines, keys_of(&figures));
        text += &format!("| {metric} | {} |", figures[0].unit);
        for about in &engines {
            let cell = of_engine(&figures, &about.engine)
                .map_or("–".into(), |figure| cell(figure, best, about, keys_of(&figures)));
            text += &format!(" {cell} |");
        }
        text += "\n";
    }
    text
}

/// `466 K (0.98)`; the best rival is bold and has no ratio.
fn cell(figure: &Figure, best: Option<&Figure>, about: &EngineAbout, keys: u64) -> String {
    let value = short(figure.value);
    let counted = figure.engine == OWN || counts(about, &figure.workload, &figure.metric);
    let mark = if counted { "" } else { NOT_COUNTED };
    if figure.keys != keys {
        return format!("{value}{mark}{SMALLER}");
    }
    match best {
        Some(best) if best.engine == figure.engine => format!("**{value}**"),
        Some(best) => {
            let ratio = times_as_good(&figure.unit, figure.value, best.value);
            if ratio.is_finite() { format!("{value}{mark} ({ratio:.2})") } else { value + mark }
        }
        None => value + mark,
    }
}

/// For each metric of speed: LitheDB, the best rival, and how many times as good LitheDB is.
pub fn summary(results: &Results) -> String {
    let mut text = String::from(
        "| workload | | LitheDB | best rival | | unit | times as good |\n\
         |---|---|---:|---|---:|---|---:|\n",
    );
    for workload in workloads(results) {
        for metric in metrics(results, &workload).into_iter().filter(|metric| is_headline(metric)) {
            let figures = row(results, &workload, metric);
            let Some(own) = of_engine(&figures, OWN) else { continue };
            let Some(best) = best_rival(&figures, &results.engines, own.keys) else { continue };
            let ratio = times_as_good(&own.unit, own.value, best.value);
            text += &format!(
                "| {workload} | {metric} | {} | {} | {} | {} | {ratio:.2} |\n",
                short(own.value),
                best.engine,
                short(best.value),
                own.unit,
            );
        }
    }
    text
}

/// Costs, and the percentiles behind a rate, have their place in the tables alone.
pub fn is_headline(metric: &str) -> bool {
    let percentile = [" p50", " p99", " p99.9"].iter().any(|end| metric.ends_with(end));
    !COSTS.iter().any(|cost| metric.ends_with(cost)) && !percentile
}
