//! Scans, counts, statistics and the demo.

use std::io::{BufRead, BufReader};

use crate::shell::{Run, Shell};

fn shell_with_rows() -> Shell {
    let shell = Shell::new();
    let rows: String = (0..100).map(|index| format!("k{index:02}\tvalue {index}\n")).collect();
    let load = ["load", "-q", "--format", "tsv", "--no-header", "--value", "2", "-"];
    shell.db_with_input(&load, rows.as_bytes()).ok();
    shell
}

#[test]
fn ranges_prefixes_directions_and_limits() {
    let shell = shell_with_rows();
    let keys = |arguments: &[&str]| {
        let text = shell.db(&[&["scan", "--keys-only"], arguments].concat()).ok_text();
        text.lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&["--limit", "3"]), "k00 k01 k02");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "k99 k98");
    assert_eq!(keys(&["--prefix", "k4", "--from", "k47"]), "k47 k48 k49");
    assert_eq!(keys(&["--from", "k10", "--to", "k12"]), "k10 k11");
    assert_eq!(keys(&["--to", "k02", "--reverse"]), "k01 k00");
    assert_eq!(keys(&["--from", "k12", "--to", "k10"]), "");
    assert_eq!(keys(&["--prefix", r"\x6b9", "--key-format", "escaped", "--limit", "1"]), "k90");

    let count = |arguments: &[&str]| shell.db(&[&["count"], arguments].concat()).ok_text();
    assert_eq!(count(&[]), "100\n");
    assert_eq!(count(&["--prefix", "k4"]), "10\n");
    assert_eq!(count(&["--from", "k90", "--format", "json"]), "{\"count\":10}\n");
    assert_eq!(count(&["--from", "z"]), "0\n");
}

#[test]
fn the_same_rows_in_every_format() {
    let shell = shell_with_rows();
    let scan = |format: &str| shell.db(&["scan", "--from", "k98", "--format", format]).ok_text();
    assert_eq!(scan("escaped"), "k98\tvalue 98\nk99\tvalue 99\n");
    assert_eq!(scan("raw"), scan("escaped"));
    assert_eq!(scan("hex").lines().next(), Some("6b3938\t76616c7565203938"));
    assert_eq!(scan("csv"), "key,value\nk98,value 98\nk99,value 99\n");
    assert_eq!(scan("jsonl").lines().next(), Some(r#"{"key":"k98","value":"value 98"}"#));
    let json: serde_json::Value = serde_json::from_str(&scan("json")).unwrap();
    assert_eq!(json[1]["value"], "value 99");
    assert!(scan("table").lines().next().unwrap().starts_with(" key"), "{}", scan("table"));
}

#[test]
fn stamps_rise_with_the_commits() {
    let shell = Shell::new();
    for key in ["c", "a", "b"] {
        shell.db(&["put", key, ""]).ok();
    }
    let text = shell.db(&["scan", "--keys-only", "--stamps"]).ok_text();
    let stamp_of = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        let (millis, counter) = line.split_once('\t').unwrap().1.split_once('.').unwrap();
        (millis.parse::<u64>().unwrap(), counter.parse::<u64>().unwrap())
    };
    assert!(stamp_of("c") < stamp_of("a") && stamp_of("a") < stamp_of("b"), "{text}");
    let row = shell.db(&["get", "a", "--stamps"]).ok_text();
    assert_eq!(row.split('\t').count(), 3, "{row}");
}

#[test]
fn a_closed_pipe_ends_a_scan_quietly() {
    let shell = Shell::new();
    let rows: String =
        (0..200_000).map(|index| format!("a rather long key {index:08}\n")).collect();
    shell.db_with_input(&["load", "-q", "-"], rows.as_bytes()).ok();
    for format in ["raw", "table", "json", "csv"] {
        let mut child = shell.command(&["--db", "db", "scan", "--format", format]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'));
        let run = Run::of(child.wait_with_output().unwrap()); // Its output has no reader now.
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{format}");
    }
}

#[test]
fn statistics_are_for_people_programs_and_prometheus() {
    let shell = shell_with_rows();
    let text = shell.db(&["stats"]).ok_text();
    assert!(text.contains("default") && text.contains("space amplification"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&shell.db(&["stats", "--format", "json"]).ok_text()).unwrap();
    assert_eq!(json["keyspaces"][0]["name"], "default");
    assert!(json["keyspaces"][0]["entries_estimate"].as_u64().unwrap() >= 100, "{json}");
    assert!(json["memory"]["budget_bytes"].as_u64().unwrap() > 0, "{json}");
    let metrics = shell.db(&["stats", "--format", "prometheus"]).ok_text();
    assert!(metrics.contains("# TYPE") && metrics.contains("keyspace=\"default\""), "{metrics}");
}

#[test]
fn the_memory_budget_is_the_one_of_the_command_line() {
    let shell = shell_with_rows();
    let text = shell.db(&["stats", "--format", "json", "--memory", "64MiB"]).ok_text();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["memory"]["budget_bytes"], 64 << 20);
}

#[test]
fn the_demo_runs_twice_and_leaves_other_databases_alone() {
    let shell = Shell::new();
    let demo = || {
        let mut command = shell.command(&["demo"]);
        Run::of(command.env("LITHE_DB", "precious.lithe").output().unwrap()).ok_text()
    };
    let first = demo();
    assert!(first.contains("SNOWMAN") && first.contains("ok: "), "{first}");
    assert!(first.contains("104,772 in ") && first.contains("Try next"), "{first}");
    let second = demo();
    assert!(second.contains("from an earlier run"), "{second}");
    assert!(!shell.path("precious.lithe").exists());

    let get = shell.run(&["--db", "demo.lithe", "--keyspace", "characters", "get", "002603"]);
    assert!(get.ok_text().starts_with("SNOWMAN;So;"));
    let count = shell.run(&["--db", "demo.lithe", "--keyspace", "names", "count"]);
    assert_eq!(count.ok_text(), "34924\n");

    let (_, suggested) = second.split_once("Try next\n").unwrap();
    for line in suggested.lines().map(str::trim) {
        let run = Run::of(shell.shell_command(line).output().unwrap());
        assert_eq!(run.code, 0, "{line}: {run:?}");
        assert_eq!(run.stdout.is_empty(), line.contains(" put "), "{line} shows something");
    }
}

/// More than a pipe and the program's own buffer take: who prints it waits for its reader.
const MUCH: usize = 4 << 20;

#[test]
fn programs_that_read_share_a_database_and_one_that_writes_is_kept_out() {
    let shell = shell_with_rows();
    shell.db_with_input(&["put", "z", "-"], &vec![b'x'; MUCH]).ok();
    let mut first = shell.command(&["--db", "db", "scan"]).spawn().unwrap();
    let mut printed = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "k00\tvalue 0\n");
    // The first one has the database open until its output is read.
    assert_eq!(shell.db(&["get", "k07"]).ok_text(), "value 7");
    assert_eq!(shell.db(&["count"]).ok_text(), "101\n");
    for reading in [
        &["scan", "--limit", "1"][..],
        &["rank", "k50"],
        &["select", "3"],
        &["view", "--limit", "1"],
        &["dump", "--keys-only"],
        &["stats"],
        &["tables"],
        &["keyspaces"],
        &["indexes"],
        &["consumers"],
        &["commits"],
        &["diff", "db"],
        &["check"],
    ] {
        shell.db(reading).ok();
    }
    assert!(shell.db(&["changes"]).fails(1).contains("has no commits in front of"));
    for writing in [&["put", "a", "1"][..], &["compact"], &["commits", "--keep", "1MiB"]] {
        let said = shell.db(writing).fails(3);
        assert!(said.contains("locked by another process"), "{writing:?}: {said}");
    }
    drop(printed); // Whoever read it has seen enough.
    assert_eq!(Run::of(first.wait_with_output().unwrap()).code, 0);
    shell.db(&["put", "a", "1"]).ok();
}

#[test]
fn reading_leaves_what_a_crash_has_left() {
    let shell = Shell::new();
    let db = lithedb::Db::open(shell.path("live")).unwrap();
    let keyspace = db.keyspace_or_create("default").unwrap();
    keyspace.put("a", "1").unwrap();
    let copied = shell.shell_command("cp -r live db").output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let files = || {
        let listed = shell.shell_command("find db -type f -exec cksum {} +").output().unwrap();
        let mut lines: Vec<_> = listed.stdout.lines().map(Result::unwrap).collect();
        lines.sort();
        lines
    };
    let before = files();
    assert!(before.len() > 2, "{before:?}");
    for reading in [&["get", "a"][..], &["count"], &["stats"], &["check"]] {
        shell.db(reading).ok();
        assert_eq!(files(), before, "{reading:?}");
    }
    assert_eq!(shell.db(&["get", "a"]).ok_text(), "1");
}

#[test]
fn a_database_that_another_program_writes_to_is_read_beside_it() {
    let shell = Shell::new();
    let db = lithedb::Db::open(shell.path("db")).unwrap();
    let keyspace = db.keyspace_or_create("default").unwrap();
    keyspace.put_with("a", "1", lithedb::Durability::Buffered).unwrap();
    let text = shell.db(&["get", "a"]).fails(3);
    assert!(text.contains("--beside"), "{text}");
    assert_eq!(shell.db(&["--beside", "get", "a"]).ok_text(), "1");
    keyspace.put("b", "2").unwrap();
    assert_eq!(shell.db(&["--beside", "scan"]).ok_text(), "a\t1\nb\t2\n");
    assert_eq!(shell.db(&["--beside", "count"]).ok_text(), "2\n");
    shell.db(&["--beside", "check"]).ok();
    shell.db(&["--beside", "stats"]).ok();
    shell.db(&["--beside", "put", "c", "3"]).fails(2);
    shell.db(&["--beside", "commits"]).fails(2);
    let changes = shell.db(&["--beside", "changes"]).ok_text();
    let told = changes.lines().map(|line| line.splitn(3, '\t').last().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), ["default\tput\ta\t1", "default\tput\tb\t2"]);
    shell.db(&["--beside", "delete", "a"]).fails(3);
    assert!(!shell.path("db").join("followers").exists());
    db.close().unwrap();
    assert_eq!(shell.db(&["--beside", "count"]).ok_text(), "2\n");
}

#[test]
fn changes_of_another_program_are_shown_as_they_come() {
    let shell = Shell::new();
    let db = lithedb::Db::open(shell.path("db")).unwrap();
    let [one, other] = ["one", "other"].map(|name| db.keyspace_or_create(name).unwrap());
    one.put("a", "1").unwrap();
    let args = ["--db", "db", "changes", "--follow", "--of", "one", "--limit", "3"];
    let mut child = shell.command(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap().splitn(3, '\t').last().unwrap().to_owned();
    assert_eq!(next(), "one\tput\ta\t1");
    // The next one is shown before there is another behind it.
    other.put("not asked for", "").unwrap();
    one.put_with("b", "2", lithedb::Durability::Buffered).unwrap();
    assert_eq!(next(), "one\tput\tb\t2");
    db.flush().unwrap();
    one.delete("a").unwrap();
    assert_eq!(next(), "one\tdelete\ta\t");
    assert!(child.wait().unwrap().success(), "it has shown three");
    drop((one, other));
    db.close().unwrap();

    shell.db(&["changes", "--follow", "--consumer", "c"]).fails(2);
    let in_shell = shell.run(&["db", "-c", "changes --follow"]).fails(2);
    assert!(in_shell.contains("nobody else writes"), "{in_shell}");
}
