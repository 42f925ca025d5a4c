//! The book hangs together: every chapter is in the summary, its programs are compiled, and every
//! link leads to a file, and within it to a heading, that is there.

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn book() -> PathBuf {
    root().join("docs/guide/src")
}

fn chapters() -> BTreeSet<String> {
    let files = fs::read_dir(book()).unwrap().map(|entry| entry.unwrap().file_name());
    files.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Lines that are no code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// What links in a line lead to. Code between backticks has none.
fn links(line: &str) -> Vec<String> {
    let is_code = |index: usize| line[..index].matches('`').count() % 2 == 1;
    let starts = line.match_indices("](").filter(|(index, _)| !is_code(*index));
    let ends = starts.filter_map(|(index, _)| line[index + 2..].split(')').next());
    ends.map(str::to_owned).collect()
}

/// What a heading is called in a link, as GitHub and mdBook have it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line)).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut problems = Vec::new();
    let mut count = 0;
    for chapter in chapters() {
        let text = fs::read_to_string(book().join(&chapter)).unwrap();
        for (number, line) in prose(&text) {
            for link in links(line).into_iter().filter(|link| !link.contains("://")) {
                count += 1;
                let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
                let target = if file.is_empty() { &chapter } else { file };
                let Ok(there) = fs::read_to_string(book().join(target)) else {
                    problems.push(format!("{chapter}:{number}: no file {target}"));
                    continue;
                };
                if !heading.is_empty() && !anchors(&there).contains(heading) {
                    problems.push(format!("{chapter}:{number}: no heading {link}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(count > 50, "only {count} links were found");
}

#[test]
fn every_chapter_is_in_the_summary_and_is_compiled() {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).unwrap();
    let named: BTreeSet<String> = summary.lines().flat_map(links).collect();
    let mut there = chapters();
    assert!(there.remove("SUMMARY.md"));
    assert_eq!(named, there);
    let compiled: BTreeSet<String> =
        lithe_guide::CHAPTERS.iter().map(|file| (*file).to_owned()).collect();
    assert_eq!(compiled, there);
}

/// A block that says `rust` is compiled; none gets out of that.
#[test]
fn no_program_is_left_out() {
    for chapter in chapters() {
        let text = fs::read_to_string(book().join(&chapter)).unwrap();
        for (index, line) in text.lines().enumerate() {
            let Some(language) = line.strip_prefix("```") else { continue };
            let known = ["", "rust", "console", "sh", "toml", "ini", "go", "text"];
            assert!(known.contains(&language), "{chapter}:{}: {line}", index + 1);
        }
        assert_eq!(text.matches("\n```").count() % 2, 0, "{chapter}: a block has no end");
        assert!(!text.contains("TODO"), "{chapter}");
    }
}

#[test]
fn links_are_found_and_headings_named_as_elsewhere() {
    assert_eq!(links("a [b](c.md) `[d](e)` [f](#g)"), ["c.md", "#g"]);
    let heading = "## What a sync costs, and how it is shared";
    assert_eq!(anchor(heading), "what-a-sync-costs-and-how-it-is-shared");
    assert_eq!(anchor("## `Db::update`"), "dbupdate");
}
