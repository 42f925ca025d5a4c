//! The figures of a run: what `results.json` holds.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use programs::{EngineAbout, Safety};

/// All there is to know about a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Where and how.
    pub head: Head,
    /// Engines, in the order in which they ran.
    pub engines: Vec<EngineAbout>,
    /// Figures, in the order in which they were measured first.
    pub figures: Vec<Figure>,
    /// What was not measured, and why.
    pub gaps: Vec<Gap>,
}

/// Where and how a run was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// Processor and system.
    pub machine: String,
    /// Version control's name of the state of LitheDB.
    pub revision: String,
    /// Compilers and their flags, one sentence each.
    pub compilers: Vec<String>,
    /// Keys of the large store.
    pub keys: u64,
    /// By what all other counts were divided.
    pub divisor: u64,
    /// How often each step ran.
    pub repeat: u32,
    /// Engines that ran in the first round only.
    #[serde(default)]
    pub once: Vec<String>,
    /// Memory for the engines, bytes or `default`.
    pub memory: Vec<String>,
    /// Seconds after which a step was ended.
    pub cap_s: u64,
    /// GiB of stores after which a step was ended.
    pub cap_gib: u64,
}

/// One figure of one engine: the median of its samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Of which engine.
    pub engine: String,
    /// `W3`, `1GiB W4`, `W16 1M W3`, ..
    pub workload: String,
    /// What was measured.
    pub metric: String,
    /// Of `value` and `samples`.
    pub unit: String,
    /// Keys of the large store: less than asked for, if the engine was too slow to load all.
    pub keys: u64,
    /// The median.
    pub value: f64,
    /// One per round.
    pub samples: Vec<f64>,
    /// Checksums, counts and what else explains the figure; of the last round.
    pub details: Map<String, Value>,
}

/// A step that gave no figures, or not all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// Of which engine.
    pub engine: String,
    /// Which step, as the page calls it; empty for an engine that could not be built.
    pub step: String,
    /// Why, one sentence.
    pub why: String,
}

impl Results {
    /// A run with this head and these engines adds to what was measured before: further rounds if
    /// it is of all workloads, or further workloads.
    ///
    /// # Errors
    /// If it is of other sizes: figures of the same name would not be of the same.
    pub fn go_on(
        &mut self,
        head: &Head,
        engines: Vec<EngineAbout>,
        is_of_all: bool,
    ) -> lithe_bench::Result<()> {
        if (head.keys, head.divisor) != (self.head.keys, self.head.divisor) {
            return lithe_bench::wrong("the figures there are of another size");
        }
        if is_of_all {
            let others = self.engines.iter().map(|about| about.engine.clone());
            let others = others.filter(|name| !engines.iter().any(|about| about.engine == *name));
            let others: Vec<_> = others.filter(|name| !self.head.once.contains(name)).collect();
            self.head.once.extend(others);
            self.head.repeat += head.repeat;
        }
        for about in engines {
            if !self.engines.iter().any(|known| known.engine == about.engine) {
                self.engines.push(about);
            }
        }
        if !self.head.revision.contains(&head.revision) {
            self.head.revision += &format!("`, then `{}", head.revision);
        }
        Ok(())
    }

    /// Adds a sample.
    pub fn add(&mut self, engine: &str, keys: u64, row: lithe_bench::Row) {
        let known = self.figures.iter_mut().find(|figure| {
            (figure.engine.as_str(), figure.keys) == (engine, keys)
                && figure.workload == row.workload
                && figure.metric == row.metric
        });
        let figure = if let Some(figure) = known {
            figure
        } else {
            self.figures.push(Figure {
                engine: engine.into(),
                workload: row.workload,
                metric: row.metric,
                unit: row.unit,
                keys,
                ..Figure::default()
            });
            self.figures.last_mut().expect("one was pushed")
        };
        figure.samples.push(row.value);
        figure.value = lithe_bench::median(&figure.samples);
        figure.details = row.details;
    }

    /// Notes that something was not measured; once, however often it happened.
    pub fn note_gap(&mut self, engine: &str, step: &str, why: &str) {
        let gap = Gap { engine: engine.into(), step: step.into(), why: why.into() };
        if !self.gaps.contains(&gap) {
            self.gaps.push(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithe_bench::Row;

    #[test]
    fn samples_of_one_figure_come_together_and_the_value_is_their_median() {
        let mut results = Results::default();
        for (engine, keys, value) in [("a", 5, 3.0), ("b", 5, 9.0), ("a", 5, 1.0), ("a", 5, 2.0)] {
            results.add(engine, keys, Row::new("W1", "batch", value, "ops/s").with("sum", value));
        }
        results.add("a", 2, Row::new("W1", "batch", 7.0, "ops/s"));
        assert_eq!(results.figures.len(), 3);
        let first = &results.figures[0];
        assert_eq!((first.value, first.samples.len()), (2.0, 3));
        assert_eq!(first.details["sum"], 2.0);
    }

    #[test]
    fn a_later_run_adds_rounds_or_workloads() {
        let about = |name: &str| EngineAbout { engine: name.into(), ..EngineAbout::default() };
        let head =
            Head { keys: 5, divisor: 1, repeat: 2, revision: "r1".into(), ..Head::default() };
        let engines = vec![about("a"), about("b")];
        let mut results = Results { head: head.clone(), engines, ..Results::default() };
        let later = Head { repeat: 1, revision: "r2".into(), ..head.clone() };
        results.go_on(&later, vec![about("a"), about("c")], true).unwrap();
        assert_eq!((results.head.repeat, results.head.once.as_slice()), (3, &["b".to_owned()][..]));
        assert_eq!((results.engines.len(), results.head.revision.as_str()), (3, "r1`, then `r2"));
        results.go_on(&later, vec![about("a")], false).unwrap();
        assert_eq!(results.head.repeat, 3, "one more workload");
        let other = Head { keys: 6, ..head };
        assert!(results.go_on(&other, Vec::new(), true).is_err());
    }

    #[test]
    fn a_gap_is_noted_once() {
        let mut results = Results::default();
        results.note_gap("a", "W3", "too slow");
        results.note_gap("a", "W3", "too slow");
        results.note_gap("b", "W3", "too slow");
        assert_eq!(results.gaps.len(), 2);
    }

    #[test]
    fn results_survive_json() {
        let mut results = Results::default();
        results.engines.push(EngineAbout { safety: Safety::Sync, ..EngineAbout::default() });
        results.add("a", 5, Row::new("W1", "batch", 3.5, "ops/s"));
        let text = serde_json::to_string(&results).unwrap();
        let back: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(back.figures, results.figures);
        assert_eq!(back.engines[0].safety, Safety::Sync);
    }
}
