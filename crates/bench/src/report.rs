//! Rows of a report, and their forms: a table to read, JSON lines and Markdown.

use serde_json::{Map, Value, json};

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `W3`, `W16 1M W4`, ..
    pub workload: String,
    /// What was measured: `random`, `uniform 2 threads`, ..
    pub metric: String,
    /// The figure, in `unit`.
    pub value: f64,
    /// `ops/s`, `ns`, `us`, `ms`, `x`, `MiB`, ..
    pub unit: String,
    /// Checksums, counts and what else explains the figure.
    pub details: Map<String, Value>,
}

impl Row {
    /// A figure without details.
    pub fn new(workload: &str, metric: &str, value: f64, unit: &str) -> Row {
        Row {
            workload: workload.into(),
            metric: metric.into(),
            value,
            unit: unit.into(),
            details: Map::new(),
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Row {
        self.details.insert(name.into(), value.into());
        self
    }

    /// One JSON object. A figure that JSON cannot say (infinite) becomes null.
    pub fn to_json(&self) -> Value {
        json!({
            "workload": self.workload, "metric": self.metric, "value": self.value,
            "unit": self.unit, "details": self.details,
        })
    }

    /// Reads what `to_json` wrote; `None` if it is something else.
    pub fn from_json(value: &Value) -> Option<Row> {
        Some(Row {
            workload: value.get("workload")?.as_str()?.into(),
            metric: value.get("metric")?.as_str()?.into(),
            value: value.get("value")?.as_f64().unwrap_or(f64::NAN),
            unit: value.get("unit")?.as_str()?.into(),
            details: value.get("details")?.as_object()?.clone(),
        })
    }

    fn same_figure(&self, other: &Row) -> bool {
        self.workload == other.workload && self.metric == other.metric
    }
}

/// The middle one; of an even count the mean of the two in the middle; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// One row per figure out of the rows of several runs: the median, with `min`, `max` and `runs`
/// among the details. Order as in the first run; other details from the last.
pub fn medians(runs: &[Vec<Row>]) -> Vec<Row> {
    let mut merged: Vec<Row> = Vec::new();
    for row in runs.iter().flatten() {
        if !merged.iter().any(|known| known.same_figure(row)) {
            merged.push(row.clone());
        }
    }
    for row in &mut merged {
        let all: Vec<&Row> = runs.iter().flatten().filter(|other| row.same_figure(other)).collect();
        let values: Vec<f64> = all.iter().map(|row| row.value).collect();
        if let Some(last) = all.last() {
            row.details = last.details.clone();
        }
        row.value = median(&values);
        if values.len() > 1 {
            let (min, max) = values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
            row.details.insert("min".into(), json!(min));
            row.details.insert("max".into(), json!(max));
            row.details.insert("runs".into(), json!(values.len()));
        }
    }
    merged
}

/// A figure with three to four significant digits: `466 K`, `1.05 M`, `2.31`.
pub fn figure(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " K"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{suffix}")
}

fn detail_text(row: &Row) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().map_or("?".into(), figure),
        other => other.to_string(),
    };
    row.details
        .iter()
        .map(|(name, value)| format!("{name} {}", text(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Columns in line, for a terminal.
pub fn to_table(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let (workload_width, metric_width) = (width(|row| &row.workload), width(|row| &row.metric));
    rows.iter()
        .map(|row| {
            let line = format!(
                "{:workload_width$}  {:metric_width$}  {:>8} {:6}  {}",
                row.workload,
                row.metric,
                figure(row.value),
                row.unit,
                detail_text(row),
            );
            line.trim_end().to_owned() + "\n"
        })
        .collect()
}

/// One JSON object per line.
pub fn to_json_lines(rows: &[Row]) -> String {
    rows.iter().map(|row| row.to_json().to_string() + "\n").collect()
}

/// A Markdown table, preceded by `about` (a line that says where the figures come from).
pub fn to_markdown(about: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "{about}\n\n| workload | metric | value | unit | details |\n|---|---|---:|---|---|\n"
    );
    for row in rows {
        let cells = [&row.workload, &row.metric, &figure(row.value), &row.unit, &detail_text(row)]
            .map(|cell| cell.replace('|', "\\|"));
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, value: f64) -> Row {
        Row::new("W1", metric, value, "ops/s").with("checksum", 17u64)
    }

    #[test]
    fn medians_keep_order_and_say_how_far_the_runs_lay_apart() {
        let runs = [
            vec![row("batch", 10.0), row("single", 1.0)],
            vec![row("batch", 30.0), row("single", 2.0)],
            vec![row("batch", 20.0)],
        ];
        let merged = medians(&runs);
        assert_eq!(merged.len(), 2);
        assert_eq!((merged[0].metric.as_str(), merged[0].value), ("batch", 20.0));
        assert_eq!(merged[0].details["min"], json!(10.0));
        assert_eq!(merged[0].details["runs"], json!(3));
        assert_eq!(merged[0].details["checksum"], json!(17));
        assert!((merged[1].value - 1.5).abs() < 1e-9);
    }

    #[test]
    fn one_run_has_no_spread_and_no_run_has_no_median() {
        let merged = medians(&[vec![row("batch", 10.0)]]);
        assert!(!merged[0].details.contains_key("min"));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_row_survives_json() {
        let before = row("batch | sync", 1234.5).with("note", "caf\u{e9} \"x\"");
        let text = to_json_lines(std::slice::from_ref(&before));
        let value: Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(Row::from_json(&value), Some(before));
        assert_eq!(Row::from_json(&json!({"workload": 1})), None);
    }

    #[test]
    fn figures_are_short() {
        let texts = [466_123.0, 1_050_000.0, 2.314, 13.27, 854.3, 0.0].map(figure);
        assert_eq!(texts, ["466 K", "1.05 M", "2.31", "13.3", "854", "0.00"]);
    }

    #[test]
    fn tables_have_a_line_per_row() {
        let rows = [row("batch", 1e6), row("a|b", 2.0)];
        assert_eq!(to_table(&rows).lines().count(), 2);
        assert!(to_table(&rows).starts_with("W1  batch    1.00 M ops/s   checksum 17\n"));
        let markdown = to_markdown("Engine x", &rows);
        assert!(markdown.ends_with("| W1 | a\\|b | 2.00 | ops/s | checksum 17 |\n"));
    }
}
