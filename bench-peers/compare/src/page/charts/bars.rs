//! Speed: a panel per metric, a bar per engine. A bar is as long as the engine is fast, beside the
//! fastest of the panel; so longer is always better, whatever the unit of the figure beside it.

use super::svg::{Anchor, Class, Svg};
use super::{Chart, class_of, file_name};
use crate::judge::{OWN, times_as_good};
use crate::page::tables::{is_headline, metrics, row};
use crate::page::trade::WORKLOAD as WORKLOAD_TRADE;
use crate::results::{Figure, Results};
use lithe_bench::figure as short;

/// Units of speed; others (sizes, shares) have charts of their own, or none.
const SPEEDS: [&str; 6] = ["ops/s", "MB/s", "ns", "us", "ms", "ns/key"];

const COLUMNS: usize = 3;
const PANEL_WIDTH: f64 = 320.0;
const NAME_WIDTH: f64 = 92.0;
const VALUE_WIDTH: f64 = 56.0;
const BAR_WIDTH_MAX: f64 = PANEL_WIDTH - NAME_WIDTH - VALUE_WIDTH - 12.0;
const LINE_HEIGHT: f64 = 16.0;
const BAR_HEIGHT: f64 = 11.0;
const TITLE_HEIGHT: f64 = 28.0;

/// The chart of a workload; `None` if nothing of it is a speed.
pub fn chart(results: &Results, workload: &str) -> Option<Chart> {
    let panels: Vec<(&str, Vec<&Figure>)> = metrics(results, workload)
        .into_iter()
        .filter(|metric| is_headline(metric))
        .map(|metric| (metric, row(results, workload, metric)))
        .filter(|(_, figures)| SPEEDS.contains(&figures[0].unit.as_str()))
        .collect();
    let lines = panels.iter().map(|(_, figures)| figures.len()).max()?;
    if workload == WORKLOAD_TRADE {
        return None; // It has a chart of its own.
    }
    let panel_height = TITLE_HEIGHT + lines as f64 * LINE_HEIGHT + 10.0;
    let mut svg = Svg::default();
    for (place, (metric, figures)) in panels.iter().enumerate() {
        let corner =
            ((place % COLUMNS) as f64 * PANEL_WIDTH, (place / COLUMNS) as f64 * panel_height);
        panel(&mut svg, results, corner, metric, figures);
    }
    let columns = panels.len().min(COLUMNS) as f64;
    let size = (columns * PANEL_WIDTH, panels.len().div_ceil(COLUMNS) as f64 * panel_height);
    let title = format!("{workload}: speed by engine, longer is better");
    Some(Chart {
        name: file_name(workload),
        workload: workload.into(),
        svg: svg.finish(size, &title),
        title,
    })
}

fn panel(svg: &mut Svg, results: &Results, corner: (f64, f64), metric: &str, figures: &[&Figure]) {
    let (left, top) = corner;
    let unit = &figures[0].unit;
    svg.text((left + 4.0, top + 16.0), Anchor::Start, Class::Title, &format!("{metric}, {unit}"));
    for (line, (figure, share)) in by_speed(figures).into_iter().enumerate() {
        let y = top + TITLE_HEIGHT + line as f64 * LINE_HEIGHT;
        let (bar_left, text_y) = (left + NAME_WIDTH, y + BAR_HEIGHT - 1.5);
        let class = class_of(results, figure);
        svg.text((bar_left - 6.0, text_y), Anchor::End, class, &figure.engine);
        let width = (share * BAR_WIDTH_MAX).max(0.5);
        svg.rectangle((bar_left, y), (width, BAR_HEIGHT), class);
        let label = short(figure.value);
        svg.text((bar_left + width + 5.0, text_y), Anchor::Start, class, &label);
    }
}

/// The fastest first, each with its speed as a share of the fastest. Of an engine with figures at
/// several sizes, and of figures at another size than LitheDB's, none.
fn by_speed<'a>(figures: &[&'a Figure]) -> Vec<(&'a Figure, f64)> {
    let own = figures.iter().find(|figure| figure.engine == OWN).map(|figure| figure.keys);
    let keys = own.or_else(|| figures.iter().map(|figure| figure.keys).max()).unwrap_or(0);
    let usable = |figure: &&&Figure| figure.keys == keys && figure.value > 0.0;
    let mut sorted: Vec<&Figure> = figures.iter().filter(usable).copied().collect();
    let speed = |figure: &Figure| times_as_good(&figure.unit, figure.value, 1.0);
    sorted.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    let best = sorted.first().map_or(1.0, |figure| speed(figure));
    sorted.into_iter().map(|figure| (figure, speed(figure) / best)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_shares_of_the_fastest_also_for_times() {
        let figure = |engine: &str, value: f64, keys: u64| Figure {
            engine: engine.into(),
            unit: "ns".into(),
            value,
            keys,
            ..Figure::default()
        };
        let all = [figure(OWN, 40.0, 5), figure("b", 20.0, 5), figure("c", 1.0, 2)];
        let figures: Vec<&Figure> = all.iter().collect();
        let bars: Vec<(&str, f64)> = by_speed(&figures)
            .into_iter()
            .map(|(figure, share)| (figure.engine.as_str(), share))
            .collect();
        assert_eq!(bars, [("b", 1.0), (OWN, 0.5)]);
    }
}
