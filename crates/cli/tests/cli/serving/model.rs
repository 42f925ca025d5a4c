//! What a writer knows of its keys: what was acknowledged, and what was under way.
//!
//! What a step does is done as a whole, and the steps of one connection in their order. So what is
//! there behind a kill is what was acknowledged, and behind that some of the first steps that were
//! under way.

use std::collections::{BTreeMap, VecDeque};

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Text(String),
    Fields(BTreeMap<String, String>),
    Items(Vec<String>),
}

/// All keys of a writer.
pub type Contents = BTreeMap<String, Content>;

/// A write.
#[derive(Clone, Debug)]
pub enum Op {
    Put { key: String, value: String },
    Delete { key: String },
    Increment { key: String },
    SetField { key: String, field: String, value: String },
    Push { key: String, value: String },
}

/// Writes that are there together or not at all.
pub type Step = Vec<Op>;

impl Op {
    /// Does it; returns what the Redis protocol says of it.
    fn apply(&self, contents: &mut Contents) -> String {
        match self {
            Op::Put { key, value } => {
                contents.insert(key.clone(), Content::Text(value.clone()));
                "+OK".to_owned()
            }
            Op::Delete { key } => format!(":{}", u8::from(contents.remove(key).is_some())),
            Op::Increment { key } => {
                let earlier = contents.get(key).map_or(0, |content| match content {
                    Content::Text(number) => number.parse::<u64>().unwrap(),
                    other => panic!("{key} is no counter: {other:?}"),
                });
                contents.insert(key.clone(), Content::Text((earlier + 1).to_string()));
                format!(":{}", earlier + 1)
            }
            Op::SetField { key, field, value } => {
                let none = Content::Fields(BTreeMap::new());
                match contents.entry(key.clone()).or_insert(none) {
                    Content::Fields(fields) => {
                        let earlier = fields.insert(field.clone(), value.clone());
                        format!(":{}", u8::from(earlier.is_none()))
                    }
                    other => panic!("{key} has no fields: {other:?}"),
                }
            }
            Op::Push { key, value } => {
                match contents.entry(key.clone()).or_insert(Content::Items(Vec::new())) {
                    Content::Items(items) => {
                        items.push(value.clone());
                        format!(":{}", items.len())
                    }
                    other => panic!("{key} has no items: {other:?}"),
                }
            }
        }
    }
}

/// What a writer knows.
#[derive(Debug, Default)]
pub struct Known {
    acknowledged: Contents,
    under_way: VecDeque<Step>,
}

impl Known {
    /// A step is about to be sent.
    pub fn begin(&mut self, step: Step) {
        self.under_way.push_back(step);
    }

    /// The first step that is under way.
    pub fn first(&self) -> &Step {
        self.under_way.front().expect("a step is under way")
    }

    /// The first step that is under way was acknowledged; returns what has to be said of it.
    pub fn acknowledge(&mut self) -> Vec<String> {
        let step = self.under_way.pop_front().expect("a step is under way");
        step.iter().map(|op| op.apply(&mut self.acknowledged)).collect()
    }

    /// Goes on from what was found. Returns how many of how many steps under way are there.
    pub fn settle(&mut self, found: &Contents) -> Result<(usize, usize), String> {
        let count = self.under_way.len();
        let mut said = String::new();
        for there in 0..=count {
            if self.acknowledged == *found {
                self.under_way.clear();
                return Ok((there, count));
            }
            let difference = difference(&self.acknowledged, found);
            said.push_str(&format!("\n  with {there} of {count} under way: {difference}"));
            if there < count {
                self.acknowledge();
            }
        }
        Err(format!("what is there is not what was acknowledged:{said}"))
    }
}

/// The first key in which they differ.
fn difference(expected: &Contents, found: &Contents) -> String {
    let mut keys = expected.keys().chain(found.keys());
    let key = keys.find(|key| expected.get(*key) != found.get(*key)).expect("they differ");
    let (expected, found) = (shown(expected.get(key)), shown(found.get(key)));
    format!("{key} should be {expected} and is {found}")
}

/// Its beginning and end: values are long.
fn shown(content: Option<&Content>) -> String {
    let text = format!("{content:?}");
    match text.len() {
        0..=120 => text,
        size => format!("{} .. {} ({size} bytes)", &text[..80], &text[size - 40..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Op {
        Op::Put { key: key.to_owned(), value: value.to_owned() }
    }

    fn push(value: &str) -> Op {
        Op::Push { key: "l".to_owned(), value: value.to_owned() }
    }

    /// Of three acknowledged steps, and three under way, the second with two writes.
    fn known() -> Known {
        let mut known = Known::default();
        for step in [vec![put("a", "1")], vec![put("b", "1")], vec![push("x")]] {
            known.begin(step);
            known.acknowledge();
        }
        known.begin(vec![put("a", "2")]);
        known.begin(vec![put("b", "2"), push("y")]);
        known.begin(vec![Op::Delete { key: "a".to_owned() }]);
        known
    }

    fn contents(a: Option<&str>, b: &str, items: &[&str]) -> Contents {
        let text = |text: &str| Content::Text(text.to_owned());
        let items = Content::Items(items.iter().map(|item| (*item).to_owned()).collect());
        let mut contents = Contents::from([("b".into(), text(b)), ("l".into(), items)]);
        contents.extend(a.map(|a| ("a".into(), text(a))));
        contents
    }

    #[test]
    fn what_was_under_way_may_be_there_from_the_first_on() {
        for (there, found) in [
            contents(Some("1"), "1", &["x"]),
            contents(Some("2"), "1", &["x"]),
            contents(Some("2"), "2", &["x", "y"]),
            contents(None, "2", &["x", "y"]),
        ]
        .iter()
        .enumerate()
        {
            let mut known = known();
            assert_eq!(known.settle(found), Ok((there, 3)));
            assert_eq!(known.settle(found), Ok((0, 0)), "it goes on from there");
        }
    }

    #[test]
    fn what_is_missing_half_there_or_too_much_is_found() {
        for found in [
            contents(None, "1", &["x"]), // Lost; its deletion came behind the others.
            contents(Some("1"), "1", &[]), // Lost.
            contents(Some("2"), "2", &["x"]), // Half of a step.
            contents(Some("1"), "2", &["x", "y"]), // Without the one before it.
            contents(Some("3"), "1", &["x"]), // What nobody wrote.
        ] {
            let error = known().settle(&found).unwrap_err();
            assert!(error.contains("with 3 of 3 under way: "), "{error}");
        }
        let mut more = contents(Some("1"), "1", &["x"]);
        more.insert("c".into(), Content::Text("1".into()));
        assert!(known().settle(&more).unwrap_err().contains("c should be None and is Some"));
    }
}
