//! Spans, cuts and parts.

use crate::base::Slice;
use crate::structure::lsm::pick::tests::cases::{policy, version};
use crate::structure::lsm::pick::{Span, TableFigures, level0_cuts, output_table_size, split_keys};

fn span(first: &str, end: Option<&str>) -> Span {
    let slice = |text: &str| Slice::from(text.as_bytes());
    Span { first: slice(first), end: end.map(slice) }
}

#[test]
fn spans_overlap_when_a_key_may_be_in_both() {
    for (left, right, expected) in [
        (span("a", Some("c")), span("b", Some("d")), true),
        (span("a", Some("c")), span("c", Some("d")), false),
        (span("a", None), span("x", Some("y")), true),
        (span("a", None), span("b", None), true),
        (span("b", None), span("a", Some("b")), false),
        (span("", Some("a")), span("", Some("b")), true),
    ] {
        assert_eq!(left.overlaps(&right), expected, "{left:?} {right:?}");
        assert_eq!(right.overlaps(&left), expected, "{right:?} {left:?}");
    }
    assert!(Span::all().overlaps(&span("k", Some("k\0"))));
}

#[test]
fn a_hull_holds_both_and_what_is_between() {
    let hull = |left: Span, right: Span| left.hull(&right);
    let near = span("a", Some("c"));
    assert_eq!(hull(near.clone(), span("x", Some("z"))), span("a", Some("z")));
    assert_eq!(hull(near.clone(), span("b", None)), span("a", None));
    assert_eq!(hull(span("b", None), near.clone()), span("a", None));
    assert_eq!(hull(near.clone(), span("aa", Some("b"))), near);
}

fn texts(keys: &[Slice]) -> Vec<String> {
    keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

#[test]
fn compactions_fall_into_parts_of_about_the_same_size() {
    let version = version("6: 1:a-b=10 2:c-d=10 3:e-f=10 4:g-h=10");
    let tables: Vec<&TableFigures> = version.tables().collect();
    assert_eq!(texts(&split_keys(&tables, 2)), ["e"]);
    assert_eq!(texts(&split_keys(&tables, 4)), ["c", "e", "g"]);
    assert_eq!(texts(&split_keys(&tables, 1)), Vec::<String>::new());
    assert!(split_keys(&tables, 100).len() < 8);
    assert!(split_keys(&tables[..1], 8).is_empty(), "nothing is known about what is inside");
    assert!(split_keys(&[], 3).is_empty());
}

#[test]
fn runs_are_cut_where_no_table_lies_across() {
    let policy = policy();
    let large = "6: 1:a-b=100 2:c-d=100 3:e-f=100 4:g-h=100";
    let cuts = |text: &str, size| texts(&level0_cuts(&version(text), &policy, size));
    let nowhere: [&str; 0] = [];
    assert_eq!(cuts("", 100), nowhere);
    assert_eq!(cuts(large, 1), nowhere, "too small to cut");
    assert_eq!(cuts(large, 2), ["e"]);
    assert_eq!(cuts(large, 100), ["c", "e", "g"]);
    // A run that was cut in front of `c`, where the next one is cut as well: at `e` its table would
    // lie across, and from where that begins the next one would be cut too far behind.
    let before = format!("0: 9:a-b=3 10:cc-h=3\n{large}");
    assert_eq!(cuts(&before, 2), ["c"]);
}

#[test]
fn tables_of_an_outcome_are_about_equal() {
    let policy = policy();
    let large = version("6: 1:a-z=100000");
    assert_eq!(output_table_size(&large, &policy, 1000), 100);
    assert_eq!(output_table_size(&large, &policy, 1010), 92, "eleven of 92, and none of 10");
    assert_eq!(output_table_size(&large, &policy, 0), 1);
    let small = version("6: 1:a-z=320");
    assert_eq!(output_table_size(&small, &policy, 100), 20, "so that it falls into columns");
}
