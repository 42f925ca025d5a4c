//! The trade between writing, reading and space: figures named `<what> at <setting>`, gathered by
//! setting. Only one engine has such figures.

use crate::results::Results;
use lithe_bench::figure as short;

/// The workload.
pub const WORKLOAD: &str = "Trade";
/// The setting that a new keyspace has.
pub const DEFAULT: &str = "0.5";

/// What is shown, in the order of the columns.
pub const WRITTEN: &str = "write amplification";
pub const SPACE: &str = "largest directory / data";
pub const GET: &str = "get";
pub const SCAN: &str = "seek + next 50";
const COLUMNS: [(&str, &str); 6] = [
    (WRITTEN, "x"),
    (SPACE, "x"),
    ("directory / data", "x"),
    (GET, "us"),
    (SCAN, "us"),
    ("overwrites", "ops/s"),
];

/// The settings, in the order in which they were measured.
pub fn settings(results: &Results) -> Vec<&str> {
    let mut settings: Vec<&str> = Vec::new();
    for figure in results.figures.iter().filter(|figure| figure.workload == WORKLOAD) {
        let setting = figure.metric.rsplit_once(" at ").map(|(_, setting)| setting);
        settings.extend(setting.filter(|setting| !settings.contains(setting)));
    }
    settings
}

/// The figure called `what` at `setting`.
pub fn value(results: &Results, what: &str, setting: &str) -> Option<f64> {
    let metric = format!("{what} at {setting}");
    let of_it =
        |figure: &&crate::results::Figure| figure.workload == WORKLOAD && figure.metric == metric;
    results.figures.iter().find(of_it).map(|figure| figure.value)
}

/// A row per setting.
pub fn table(results: &Results) -> String {
    let mut text = String::from("| pace |");
    COLUMNS.iter().for_each(|(name, unit)| text += &format!(" {name}, {unit} |"));
    text += "\n|---|";
    text += &"---:|".repeat(COLUMNS.len());
    text += "\n";
    for setting in settings(results) {
        let mark = if setting == DEFAULT { " (default)" } else { "" };
        text += &format!("| {setting}{mark} |");
        for (name, _) in COLUMNS {
            let cell = value(results, name, setting).map_or("–".into(), short);
            text += &format!(" {cell} |");
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithe_bench::Row;

    #[test]
    fn figures_are_gathered_by_setting() {
        let mut results = Results::default();
        for (setting, written) in [("0.1", 9.0), ("0.5", 4.0)] {
            let row = Row::new(WORKLOAD, &format!("{WRITTEN} at {setting}"), written, "x");
            results.add("lithedb", 5, row);
        }
        assert_eq!(settings(&results), ["0.1", "0.5"]);
        assert_eq!(value(&results, WRITTEN, "0.5"), Some(4.0));
        let table = table(&results);
        assert!(table.contains("| 0.1 | 9.00 | – |"), "{table}");
        assert!(table.contains("| 0.5 (default) | 4.00 |"), "{table}");
    }
}
