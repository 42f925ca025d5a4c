//! Amplification: bytes written to the disk (across) against bytes that lie there (up), both over
//! the bytes of data, on scales of powers of ten. The lower left corner is the best.

use super::svg::{Anchor, Class, Svg};
use super::{Chart, LogScale, class_of, file_name};
use crate::page::tables::{metrics, row};
use crate::results::{Figure, Results};
use lithe_bench::figure as short;

const WRITTEN: &str = "write amplification";
const LYING: &str = "directory / data";

const PANEL_WIDTH: f64 = 470.0;
const PANEL_HEIGHT: f64 = 340.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 96.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
const RADIUS: f64 = 4.5;
/// Names this near to each other would cover each other.
const NAME_HEIGHT: f64 = 12.0;

/// What an engine wrote, and what lies there.
type Spot<'a> = (&'a Figure, f64, f64);

/// The chart of a workload; `None` if it has no such figures.
pub fn chart(results: &Results, workload: &str) -> Option<Chart> {
    let prefixes = metrics(results, workload)
        .into_iter()
        .filter_map(|metric| Some(metric.strip_suffix(WRITTEN)?.trim_end()));
    let panels: Vec<(&str, Vec<Spot<'_>>)> = prefixes
        .map(|prefix| (prefix, spots(results, workload, prefix)))
        .filter(|(_, spots)| !spots.is_empty())
        .collect();
    if panels.is_empty() {
        return None;
    }
    let mut svg = Svg::default();
    for (place, (prefix, spots)) in panels.iter().enumerate() {
        draw(&mut svg, results, place as f64 * PANEL_WIDTH, prefix, spots);
    }
    let title = format!("{workload}: write amplification against directory size over data");
    Some(Chart {
        name: format!("{}-amplification", file_name(workload)),
        workload: workload.into(),
        svg: svg.finish((panels.len() as f64 * PANEL_WIDTH, PANEL_HEIGHT), &title),
        title,
    })
}

fn spots<'a>(results: &'a Results, workload: &str, prefix: &str) -> Vec<Spot<'a>> {
    let metric = |name: &str| format!("{prefix} {name}").trim().to_owned();
    let written = row(results, workload, &metric(WRITTEN));
    let lying = row(results, workload, &metric(LYING));
    written
        .into_iter()
        .filter_map(|figure| {
            let same =
                |other: &&&Figure| (&other.engine, other.keys) == (&figure.engine, figure.keys);
            Some((figure, figure.value, lying.iter().find(same)?.value))
        })
        .collect()
}

fn draw(svg: &mut Svg, results: &Results, left: f64, prefix: &str, spots: &[Spot<'_>]) {
    let across = LogScale::spanning(spots.iter().map(|spot| spot.1));
    let up = LogScale::spanning(spots.iter().map(|spot| spot.2));
    let (width, height) = (PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM);
    let x = |value: f64| left + LEFT + across.place(value) * width;
    let y = |value: f64| TOP + (1.0 - up.place(value)) * height;
    let bottom = TOP + height;
    for tick in minor_ticks(across) {
        svg.line((x(tick), TOP), (x(tick), bottom), Class::Grid);
        svg.text((x(tick), bottom + 14.0), Anchor::Middle, Class::Label, &label(tick));
    }
    for tick in minor_ticks(up) {
        svg.line((left + LEFT, y(tick)), (left + LEFT + width, y(tick)), Class::Grid);
        svg.text((left + LEFT - 6.0, y(tick) + 4.0), Anchor::End, Class::Label, &label(tick));
    }
    let title = format!("{prefix} directory / data (up), write amplification (across)");
    svg.text((left + 4.0, 16.0), Anchor::Start, Class::Title, title.trim());
    let mut sorted: Vec<&Spot<'_>> = spots.iter().collect();
    sorted.sort_by(|a, b| y(a.2).total_cmp(&y(b.2)));
    let mut name_y = f64::NEG_INFINITY;
    for (figure, written, lying) in sorted {
        let (class, place) = (class_of(results, figure), (x(*written), y(*lying)));
        svg.dot(place, RADIUS, class);
        name_y = (place.1 + 4.0).max(name_y + NAME_HEIGHT);
        let text = format!("{} {} / {}", figure.engine, short(*written), short(*lying));
        svg.text((place.0 + 9.0, name_y), Anchor::Start, class, &text);
    }
}

/// Powers of ten, and 2 and 5 times them.
fn minor_ticks(scale: LogScale) -> impl Iterator<Item = f64> {
    let last = 10f64.powi(scale.last);
    let all = scale.ticks().flat_map(|tick| [1.0, 2.0, 5.0].map(|times| tick * times));
    all.filter(move |tick| *tick <= last * 1.001)
}

fn label(tick: f64) -> String {
    if tick >= 1.0 { format!("{tick:.0}") } else { format!("{tick}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithe_bench::Row;

    #[test]
    fn what_was_written_is_paired_with_what_lies_there() {
        let mut results = Results::default();
        for (engine, written, lying) in [("x", 3.0, 1.2), ("y", 20.0, 2.0)] {
            let metric = |name: &str| format!("random {name}");
            results.add(engine, 5, Row::new("W3", &metric(WRITTEN), written, "x"));
            results.add(engine, 5, Row::new("W3", &metric(LYING), lying, "x"));
        }
        results.add("z", 5, Row::new("W3", "random write amplification", 2.0, "x"));
        let found: Vec<_> =
            spots(&results, "W3", "random").iter().map(|spot| (spot.1, spot.2)).collect();
        assert_eq!(found, [(3.0, 1.2), (20.0, 2.0)]);
        assert!(chart(&results, "W3").unwrap().svg.contains("y 20.0 / 2.00"));
        assert!(chart(&results, "W4").is_none());
    }
}
