//! Cutting a failing run down: ever smaller pieces of it are left out as long as the same kind of
//! thing goes wrong. After A. Zeller and R. Hildebrandt, "Simplifying and Isolating
//! Failure-Inducing Input" (2002), without the complements.
//!
//! What is cut down are the numbers of a run's operations: so the seed and the numbers that are
//! left are all that it takes to see the finding again.

use crate::finding::{Finding, Verdict};

/// Fewer items with which `fails` finds the same kind of mistake, and what it finds; after so many
/// tries at most. Where these were enough, it takes every single one of them.
pub fn shrink<T: Clone>(
    items: Vec<T>,
    finding: Finding,
    tries_max: usize,
    mut fails: impl FnMut(&[T]) -> Verdict,
) -> (Vec<T>, Finding) {
    let (mut items, mut finding) = (items, finding);
    let mut piece = items.len().div_ceil(2);
    let mut tries = 0;
    while piece > 0 && tries < tries_max {
        let (mut start, len_before) = (0, items.len());
        while start < items.len() && tries < tries_max {
            let end = (start + piece).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            tries += 1;
            match fails(&rest) {
                Err(again) if again.fault == finding.fault => {
                    items = rest;
                    finding = again;
                }
                _ => start = end,
            }
        }
        // What was needed for one that has gone by now is not needed any more.
        let is_worth_it_again = piece == 1 && items.len() < len_before;
        if !is_worth_it_again {
            piece /= 2;
        }
    }
    (items, finding)
}

/// Those items of a run that have these numbers; all, if that is not said.
#[must_use]
pub fn pick<T: Clone>(items: &[T], numbers: Option<&[usize]>) -> Vec<T> {
    match numbers {
        Some(numbers) => numbers.iter().filter_map(|number| items.get(*number)).cloned().collect(),
        None => items.to_vec(),
    }
}

/// What a program is called with for a run of which only these operations are left.
#[must_use]
pub fn keep_argument(numbers: Option<&[usize]>) -> String {
    let Some(numbers) = numbers else { return String::new() };
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match numbers.is_empty() {
        true => " --keep none".to_owned(),
        false => format!(" --keep {}", numbers.join(",")),
    }
}

/// The numbers behind `--keep`.
#[must_use]
pub fn parse_kept(text: &str) -> Option<Vec<usize>> {
    if text == "none" {
        return Some(Vec::new());
    }
    text.split(',').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Fault;

    fn wrong(what: &str) -> Finding {
        Finding::new(Fault::Wrong, what)
    }

    #[test]
    fn what_does_not_matter_is_left_out() {
        let fails = |items: &[u8]| match items.contains(&7) && items.contains(&31) {
            true => Err(wrong("both")),
            false => Ok(()),
        };
        let (items, finding) = shrink((0..40).collect(), wrong("first"), 600, fails);
        assert_eq!(items, [7, 31]);
        assert_eq!(finding.what, "both");
    }

    #[test]
    fn what_another_one_needed_goes_with_it() {
        // Without 3, 9 does harm.
        let fails = |items: &[u8]| {
            let has = |item| items.contains(&item);
            match has(5) && has(6) && (has(3) || !has(9)) {
                true => Err(wrong("again")),
                false => Ok(()),
            }
        };
        let (items, _) = shrink(vec![3, 5, 9, 6], wrong("first"), 600, fails);
        assert_eq!(items, [5, 6]);
    }

    #[test]
    fn another_kind_of_mistake_is_not_followed() {
        let fails = |items: &[u8]| match items.len() {
            0..4 => Err(Finding::new(Fault::Panic, "too few")),
            _ => Err(wrong("again")),
        };
        let mut tries = 0;
        let (items, finding) = shrink((0..16).collect(), wrong("first"), 600, |items: &[u8]| {
            tries += 1;
            fails(items)
        });
        assert_eq!((items.len(), finding.what.as_str()), (4, "again"));
        assert!(tries < 100, "{tries}");
        let (items, _) = shrink((0..16).collect::<Vec<u8>>(), wrong("first"), 1, fails);
        assert_eq!(items.len(), 8);
    }

    #[test]
    fn numbers_survive_the_command_line() {
        for numbers in [vec![], vec![0], vec![3, 17, 400]] {
            let argument = keep_argument(Some(&numbers));
            let text = argument.strip_prefix(" --keep ").unwrap();
            assert_eq!(parse_kept(text), Some(numbers.clone()));
        }
        assert_eq!(keep_argument(None), "");
        assert_eq!(parse_kept("1,,2"), None);
        assert_eq!(pick(&["a", "b", "c"], Some(&[0, 2, 9])), ["a", "c"]);
        assert_eq!(pick(&["a", "b"], None), ["a", "b"]);
    }
}
