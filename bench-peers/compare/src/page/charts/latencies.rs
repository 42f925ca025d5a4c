//! Latencies: a panel per kind of operation, a line per engine from its median to its rarest
//! percentile, on a scale of powers of ten.

use super::svg::{Anchor, Class, Svg};
use super::{Chart, LogScale, class_of, file_name};
use crate::page::tables::{metrics, row};
use crate::results::{Figure, Results};
use lithe_bench::figure as short;

const PERCENTILES: [&str; 4] = ["p50", "p99", "p99.9", "p99.99"];

const COLUMNS: usize = 3;
const PANEL_WIDTH: f64 = 320.0;
const NAME_WIDTH: f64 = 92.0;
const SCALE_WIDTH: f64 = PANEL_WIDTH - NAME_WIDTH - 24.0;
const LINE_HEIGHT: f64 = 16.0;
const TITLE_HEIGHT: f64 = 28.0;
const AXIS_HEIGHT: f64 = 26.0;
/// The median is the largest dot.
const RADII: [f64; 4] = [4.0, 3.2, 2.6, 2.0];

/// One kind of operation: its name, and the percentiles of each engine, the median first.
#[derive(Debug)]
struct Panel<'a> {
    name: String,
    engines: Vec<(&'a Figure, Vec<f64>)>,
}

/// The chart of a workload; `None` if it has no percentiles.
pub fn chart(results: &Results, workload: &str) -> Option<Chart> {
    let panels = panels(results, workload);
    let lines = panels.iter().map(|panel| panel.engines.len()).max()?;
    let panel_height = TITLE_HEIGHT + lines as f64 * LINE_HEIGHT + AXIS_HEIGHT;
    let mut svg = Svg::default();
    for (place, panel) in panels.iter().enumerate() {
        let corner =
            ((place % COLUMNS) as f64 * PANEL_WIDTH, (place / COLUMNS) as f64 * panel_height);
        draw(&mut svg, results, corner, panel);
    }
    let columns = panels.len().min(COLUMNS) as f64;
    let size = (columns * PANEL_WIDTH, panels.len().div_ceil(COLUMNS) as f64 * panel_height);
    let title = format!("{workload}: latency in microseconds, from the median to the tail");
    Some(Chart {
        name: format!("{}-latency", file_name(workload)),
        workload: workload.into(),
        svg: svg.finish(size, &title),
        title,
    })
}

/// `A read p99` is of panel `A read`; `read p99 under load` of `read under load`.
fn split(metric: &str) -> Option<(String, &str)> {
    let percentile = metric.split(' ').find(|word| PERCENTILES.contains(word))?;
    let words: Vec<&str> = metric.split(' ').filter(|word| *word != percentile).collect();
    Some((words.join(" "), percentile))
}

fn panels<'a>(results: &'a Results, workload: &str) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for metric in metrics(results, workload) {
        let Some((name, _)) = split(metric) else { continue };
        for figure in row(results, workload, metric) {
            if !panels.iter().any(|panel| panel.name == name) {
                panels.push(Panel { name: name.clone(), engines: Vec::new() });
            }
            let panel = panels.iter_mut().find(|panel| panel.name == name);
            let engines = &mut panel.expect("one was added if there was none").engines;
            let same = |(known, _): &&mut (&Figure, Vec<f64>)| known.engine == figure.engine;
            match engines.iter_mut().find(same) {
                Some((_, percentiles)) => percentiles.push(figure.value),
                None => engines.push((figure, vec![figure.value])),
            }
        }
    }
    panels
}

fn draw(svg: &mut Svg, results: &Results, (left, top): (f64, f64), panel: &Panel<'_>) {
    let values = panel.engines.iter().flat_map(|(_, percentiles)| percentiles.iter().copied());
    let scale = LogScale::spanning(values);
    let x = |value: f64| left + NAME_WIDTH + scale.place(value) * SCALE_WIDTH;
    let bottom = top + TITLE_HEIGHT + panel.engines.len() as f64 * LINE_HEIGHT;
    let title = format!("{}, us", panel.name);
    svg.text((left + 4.0, top + 16.0), Anchor::Start, Class::Title, &title);
    for tick in scale.ticks() {
        svg.line((x(tick), top + TITLE_HEIGHT - 6.0), (x(tick), bottom), Class::Grid);
        svg.text((x(tick), bottom + 12.0), Anchor::Middle, Class::Label, &tick_label(tick));
    }
    let mut engines: Vec<&(&Figure, Vec<f64>)> = panel.engines.iter().collect();
    let tail = |percentiles: &[f64]| percentiles.iter().copied().fold(0.0, f64::max);
    engines.sort_by(|a, b| tail(&a.1).total_cmp(&tail(&b.1)));
    for (line, (figure, percentiles)) in engines.into_iter().enumerate() {
        let y = top + TITLE_HEIGHT + line as f64 * LINE_HEIGHT + 5.0;
        let class = class_of(results, figure);
        svg.text((left + NAME_WIDTH - 6.0, y + 4.0), Anchor::End, class, &figure.engine);
        let (first, last) = (percentiles[0], percentiles[percentiles.len() - 1]);
        svg.line((x(first), y), (x(last), y), class);
        for (value, radius) in percentiles.iter().zip(RADII) {
            svg.dot((x(*value), y), radius, class);
        }
    }
}

/// `0.10`, `1`, `100`, `10 K`.
fn tick_label(tick: f64) -> String {
    if (1.0..1e4).contains(&tick) { format!("{tick:.0}") } else { short(tick) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithe_bench::Row;

    #[test]
    fn percentiles_of_one_operation_share_a_panel() {
        assert_eq!(split("A read p99.9"), Some(("A read".into(), "p99.9")));
        assert_eq!(split("read p50 under load"), Some(("read under load".into(), "p50")));
        assert_eq!(split("A"), None);
        let mut results = Results::default();
        for (metric, value) in [("A read p50", 1.0), ("A read p99", 9.0), ("A write p50", 2.0)] {
            for engine in ["x", "y"] {
                results.add(engine, 5, Row::new("W6", metric, value, "us"));
            }
        }
        let panels = panels(&results, "W6");
        assert_eq!(panels.len(), 2);
        assert_eq!((panels[0].engines.len(), &panels[0].engines[1].1), (2, &vec![1.0, 9.0]));
        assert!(chart(&results, "W6").unwrap().svg.contains("A write, us"));
        assert!(chart(&results, "W1").is_none());
    }
}
