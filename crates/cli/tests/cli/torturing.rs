//! `lithe torture`: honest children are found honest, planted mistakes are found, and what is found
//! is kept with its story.

use std::path::Path;

use crate::shell::{Run, Shell};

/// The number in front of what the ledger counts.
fn counted(ledger: &str, what: &str) -> u64 {
    let line = ledger.lines().find(|line| line.trim().ends_with(&format!("  {what}")));
    line.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn databases_survive_kills_and_the_ledger_says_so() {
    let shell = Shell::new();
    let line = ["torture", "kill", "--dir", "t", "--rounds", "48", "--each", "12", "--seed", "3"];
    let text = shell.run(&line).ok_text();
    assert_eq!(counted(&text, "rounds"), 48, "{text}");
    assert_eq!(counted(&text, "databases"), 4, "{text}");
    assert_eq!(counted(&text, "findings"), 0, "{text}");
    assert!(counted(&text, "kills") > 20, "{text}");
    let opened = counted(&text, "openings of the parent that were judged and checked");
    assert!(opened >= 4, "{text}");
    // Nothing stays but the ledger, which a second campaign adds to.
    assert_eq!(names(&shell.path("t")), ["ledger.txt"]);
    shell.run(&[&line[..5], &["4", "--each", "2", "--workers", "2"]].concat()).ok();
    let ledger = std::fs::read_to_string(shell.path("t/ledger.txt")).unwrap();
    let lines: Vec<&str> = ledger.lines().collect();
    assert_eq!(lines.len(), 4, "{ledger}");
    let command = "lithe torture kill --dir t --rounds 48 --each 12 --seed 3";
    assert!(lines[0].ends_with(&format!(" begun {command}")), "{ledger}");
    assert!(lines[1].contains(&format!(" ended {command}: ")), "{ledger}");
    assert!(lines[1].contains(" 48 rounds, ") && lines[1].contains(" 0 findings; "), "{ledger}");
    assert!(lines[3].contains(" 4 rounds, "), "{ledger}");
}

/// A campaign that is ended from outside has counted, and leaves nothing behind.
#[test]
fn who_is_terminated_tidies_up_and_has_its_ledger() {
    let shell = Shell::new();
    let line = ["torture", "kill", "--dir", "t", "--rounds", "100000", "--each", "100000"];
    let campaign = shell.command(&line).spawn().unwrap();
    while !shell.path("t/db-0/root/db").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = shell.shell_command(&format!("kill -TERM {}", campaign.id())).status().unwrap();
    assert!(kill.success());
    let run = Run::of(campaign.wait_with_output().unwrap());
    assert_eq!(run.code, 130, "{run:?}");
    let ledger = std::fs::read_to_string(shell.path("t/ledger.txt")).unwrap();
    assert!(ledger.lines().last().unwrap().contains(" ended lithe torture kill "), "{ledger}");
    assert!(counted(run.text(), "rounds") > 0, "{run:?}");
    assert_eq!(names(&shell.path("t")), ["ledger.txt"]);
}

#[test]
fn commits_that_are_dropped_are_found() {
    let shell = Shell::new();
    let line = ["torture", "kill", "--dir", "t", "--rounds", "80", "--canary"];
    let text = shell.run(&line).ok_text();
    assert_eq!(counted(&text, "findings"), 1, "{text}");
    assert!(text.contains("torture kill --dir t-again --rounds 80 --each 40 --seed 1 --only"));
    assert_eq!(names(&shell.path("t")), ["ledger.txt"]);
}

#[test]
fn what_is_there_already_is_left_alone() {
    let shell = Shell::new();
    std::fs::create_dir_all(shell.path("t/db-0/precious")).unwrap();
    let stderr = shell.run(&["torture", "kill", "--dir", "t", "--rounds", "2"]).fails(3);
    assert!(stderr.contains("db-0"), "{stderr}");
    assert!(shell.path("t/db-0/precious").exists());
    let ledger = std::fs::read_to_string(shell.path("t/ledger.txt")).unwrap();
    assert!(ledger.contains(": broken off: could not make "), "{ledger}");
    // So is a file that has the name of an image, whether one may mount here or not.
    shell.write("i.0", b"precious");
    shell.run(&["torture", "power", "--image", "i", "--fs", "ext4", "--rounds", "1"]).fails(3);
    assert_eq!(std::fs::read_to_string(shell.path("i.0")).unwrap(), "precious");
    assert_eq!(names(&shell.path(".")), ["i.0", "i.ledger.txt", "t"]);
    shell.run(&["torture", "power", "--image", "i", "--fs", "vfat"]).fails(2);
    shell.run(&["torture", "power", "--image", "i", "--fs", "xfs", "--flag", "3"]).fails(2);
}

/// Where the machine allows it: power cuts on both file systems, and the planted mistake.
#[test]
fn databases_survive_power_cuts() {
    for kind in ["ext4", "xfs"] {
        let shell = Shell::new();
        let base = ["torture", "power", "--image", "i", "--fs", kind, "--each", "6", "--seed", "2"];
        let Some(text) = allowed(shell.run(&[&base[..], &["--rounds", "12"]].concat())) else {
            assert_eq!(names(&shell.path(".")), ["i.ledger.txt"], "{kind}: something was left");
            continue;
        };
        assert_eq!(counted(&text, "power cuts"), 12, "{text}");
        assert_eq!(counted(&text, "findings"), 0, "{text}");
        let canary = [&base[..], &["--rounds", "60", "--flag", "2", "--canary"]].concat();
        let text = shell.run(&canary).ok_text();
        assert_eq!(counted(&text, "findings"), 1, "{text}");
        assert_eq!(names(&shell.path(".")), ["i.ledger.txt"]);
    }
}

/// What it says, unless this machine does not let it mount.
fn allowed(run: Run) -> Option<String> {
    let is_refused = run.code == 3 && run.stderr.contains("which needs root");
    let is_missing = run.code == 3 && run.stderr.contains("could not run `mkfs");
    if is_refused || is_missing {
        eprintln!("not run here: {}", run.stderr);
        return None;
    }
    Some(run.ok_text())
}
