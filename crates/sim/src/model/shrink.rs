//! Cutting a failing run down: ever smaller pieces are left out as long as the same kind of thing
//! goes wrong. After A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing
//! Input" (2002), without the complements.

use crate::finding::{Finding, Verdict};
use crate::ops::Op;

/// Tries at most: some runs are slow.
const TRY_COUNT_MAX: usize = 600;

/// A smaller list of operations with which `fails` finds the same kind of mistake, and what it
/// finds.
pub fn shrink(
    ops: Vec<Op>,
    finding: Finding,
    fails: impl Fn(&[Op]) -> Verdict,
) -> (Vec<Op>, Finding) {
    let (mut ops, mut finding) = (ops, finding);
    let mut piece = ops.len().div_ceil(2);
    let mut tries = 0;
    while piece > 0 && tries < TRY_COUNT_MAX {
        let mut start = 0;
        while start < ops.len() && tries < TRY_COUNT_MAX {
            let end = (start + piece).min(ops.len());
            let rest = [&ops[..start], &ops[end..]].concat();
            tries += 1;
            match fails(&rest) {
                Err(again) if again.fault == finding.fault => {
                    ops = rest;
                    finding = again;
                }
                _ => start = end,
            }
        }
        piece /= 2;
    }
    (ops, finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Fault;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let ops: Vec<Op> = (0..40).map(Op::Step).collect();
        let fails = |ops: &[Op]| match ops.contains(&Op::Step(7)) && ops.contains(&Op::Step(31)) {
            true => Err(Finding::new(Fault::Wrong, "both")),
            false => Ok(()),
        };
        let (ops, finding) = shrink(ops, Finding::new(Fault::Wrong, "first"), fails);
        assert_eq!(ops, [Op::Step(7), Op::Step(31)]);
        assert_eq!(finding.what, "both");
    }
}
