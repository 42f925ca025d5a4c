//! The trade: write amplification (across) against what reading and space cost (up), a dot per
//! setting of the knob, with the default one marked.

use super::svg::{Anchor, Class, Svg};
use super::{Chart, file_name};
use crate::page::trade::{DEFAULT, GET, SCAN, SPACE, WORKLOAD, WRITTEN, settings, value};
use crate::results::Results;

const PANELS: [(&str, &str); 3] = [(GET, "us"), (SCAN, "us"), (SPACE, "x")];

const PANEL_WIDTH: f64 = 320.0;
const PANEL_HEIGHT: f64 = 300.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
const RADIUS: f64 = 4.5;
/// Lines of the grid, in each direction.
const LINES: u32 = 5;

/// The chart; `None` for other workloads.
pub fn chart(results: &Results, workload: &str) -> Option<Chart> {
    if workload != WORKLOAD {
        return None;
    }
    let mut svg = Svg::default();
    for (place, (what, unit)) in PANELS.into_iter().enumerate() {
        let dots: Vec<(&str, f64, f64)> = settings(results)
            .into_iter()
            .filter_map(|setting| {
                let written = value(results, WRITTEN, setting)?;
                Some((setting, written, value(results, what, setting)?))
            })
            .collect();
        panel(&mut svg, place as f64 * PANEL_WIDTH, &format!("{what}, {unit}"), &dots);
    }
    let title = "write amplification against the cost of reads and of space, by consolidation pace";
    Some(Chart {
        name: file_name(workload),
        workload: workload.into(),
        svg: svg.finish((PANELS.len() as f64 * PANEL_WIDTH, PANEL_HEIGHT), title),
        title: title.into(),
    })
}

fn panel(svg: &mut Svg, left: f64, title: &str, dots: &[(&str, f64, f64)]) {
    let (width, height) = (PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM);
    let most = |of: fn(&(&str, f64, f64)) -> f64| dots.iter().map(of).fold(0.0, f64::max) * 1.05;
    let (across, up) = (most(|dot| dot.1), most(|dot| dot.2));
    if across <= 0.0 || up <= 0.0 {
        return;
    }
    let x = |value: f64| left + LEFT + value / across * width;
    let y = |value: f64| TOP + (1.0 - value / up) * height;
    let bottom = TOP + height;
    for line in 0..=LINES {
        let part = f64::from(line) / f64::from(LINES);
        let (tick_x, tick_y) = (across * part, up * part);
        svg.line((x(tick_x), TOP), (x(tick_x), bottom), Class::Grid);
        svg.text((x(tick_x), bottom + 14.0), Anchor::Middle, Class::Label, &format!("{tick_x:.1}"));
        svg.line((left + LEFT, y(tick_y)), (left + LEFT + width, y(tick_y)), Class::Grid);
        let label = format!("{tick_y:.1}");
        svg.text((left + LEFT - 6.0, y(tick_y) + 4.0), Anchor::End, Class::Label, &label);
    }
    svg.text((left + 4.0, 16.0), Anchor::Start, Class::Title, title);
    let below = format!("{WRITTEN} of overwrites");
    svg.text((left + LEFT + width / 2.0, bottom + 30.0), Anchor::Middle, Class::Label, &below);
    for (setting, written, cost) in dots {
        let class = if *setting == DEFAULT { Class::Own } else { Class::Rival };
        svg.dot((x(*written), y(*cost)), RADIUS, class);
        svg.text((x(*written) + 7.0, y(*cost) - 5.0), Anchor::Start, class, setting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithe_bench::Row;

    #[test]
    fn the_default_stands_out() {
        let mut results = Results::default();
        for (setting, written) in [("0.1", 9.0), ("0.5", 4.0)] {
            for (what, value) in [(WRITTEN, written), (GET, 3.0)] {
                let row = Row::new(WORKLOAD, &format!("{what} at {setting}"), value, "x");
                results.add("lithedb", 5, row);
            }
        }
        let svg = chart(&results, WORKLOAD).unwrap().svg;
        assert!(svg.contains("class=\"own\">0.5</text>"), "{svg}");
        assert!(svg.contains("class=\"rival\">0.1</text>"), "{svg}");
        assert!(chart(&results, "W3").is_none());
    }
}
