//! `load` from every format, and what it acknowledges.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::shell::{Run, Shell};

/// Lines with long shared prefixes, duplicates, blanks, and bytes that are no text.
fn odd_lines() -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for index in 0_u32..5000 {
        let number = index.wrapping_mul(2_654_435_761) % 4000;
        lines.push(format!("usr/share/doc/package-{number}/changelog.Debian.gz").into_bytes());
    }
    lines.extend(
        [&b""[..], b" ", b"\t", b"\r", b"\xFF\xFE", b"\x00", b"\x00\x00", b"a"].map(<[u8]>::to_vec),
    );
    lines
}

fn joined(lines: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    lines
        .into_iter()
        .flat_map(|mut line| {
            line.push(b'\n');
            line
        })
        .collect()
}

#[test]
fn lines_come_back_sorted_and_distinct() {
    let shell = Shell::new();
    let lines = odd_lines();
    let mut input = joined(lines.clone());
    input.pop(); // The last line has no line end.
    shell.write("input", &input);
    let run = shell.db(&["load", "--batch", "100", "input"]);
    let summary = run.stderr.clone();
    assert!(run.ok().is_empty(), "no data on standard output");
    assert!(summary.starts_with("loaded 5,008 rows in "), "{summary}");
    assert!(summary.contains(" rows/s, ") && summary.contains(" MB/s"), "{summary}");

    let distinct: BTreeSet<Vec<u8>> = lines.into_iter().collect();
    assert_eq!(shell.db(&["count"]).ok_text(), format!("{}\n", distinct.len()));
    let scanned = shell.db(&["scan", "--keys-only", "--format", "raw"]).ok();
    assert_eq!(scanned, joined(distinct));
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
}

#[test]
fn an_ingest_loads_sorted_input_all_or_nothing() {
    let shell = Shell::new();
    let distinct: BTreeSet<Vec<u8>> = odd_lines().into_iter().collect();
    let sorted: Vec<Vec<u8>> = distinct.iter().cloned().collect();
    shell.write("sorted", &joined(sorted.clone()));
    let run = shell.db(&["load", "--ingest", "--ack", "sorted"]);
    let summary = run.stderr.clone();
    assert_eq!(run.ok_text(), format!("{}\n", distinct.len()));
    assert!(summary.starts_with("loaded "), "{summary}");
    assert_eq!(shell.db(&["scan", "--keys-only", "--format", "raw"]).ok(), joined(distinct));
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));

    shell.write("unsorted", &joined(sorted.into_iter().chain([b"0".to_vec()])));
    let keyspace = ["--keyspace", "other"];
    let refused = shell.db(&[&keyspace[..], &["load", "--ingest", "unsorted"]].concat());
    let stderr = refused.fails(2);
    assert!(stderr.contains("nothing was loaded"), "{stderr}");
    assert_eq!(shell.db(&[&keyspace[..], &["count"]].concat()).ok_text(), "0\n");
}

#[test]
fn standard_input_and_line_numbers_the_last_one_wins() {
    let shell = Shell::new();
    let lines = odd_lines();
    shell
        .db_with_input(&["load", "--value", "line-number", "-q", "-"], &joined(lines.clone()))
        .ok();
    let expected: BTreeMap<Vec<u8>, usize> = lines.into_iter().zip(1..).collect();
    let expected = expected.into_iter().map(|(mut key, number)| {
        key.extend_from_slice(format!("\t{number}").as_bytes());
        key
    });
    assert_eq!(shell.db(&["scan", "--format", "raw"]).ok(), joined(expected));
}

#[test]
fn csv_tsv_and_ndjson_hold_the_same_rows() {
    let shell = Shell::new();
    shell.write("rows.csv", b"id,name\n7,\"Ada, Countess\"\n9,\"two\nlines\"\n");
    shell.write("rows.tsv", b"name\tid\nAda, Countess\t7\nx\t9\n");
    shell.write(
        "rows.ndjson",
        b"{\"id\":7,\"name\":\"Ada, Countess\"}\n{\"id\":9,\"name\":{\"hex\":\"00ff\"}}\n",
    );
    let load = |format: &str| {
        let file = format!("rows.{format}");
        let keyspace = ["--keyspace", format, "load", "-q", "--format", format];
        shell.db(&[&keyspace[..], &["--key", "id", "--value", "name", &file]].concat()).ok();
        let get = |key| shell.db(&["--keyspace", format, "get", key]).ok();
        assert_eq!(get("7"), b"Ada, Countess", "{format}");
        get("9")
    };
    assert_eq!(load("csv"), b"two\nlines");
    assert_eq!(load("tsv"), b"x");
    assert_eq!(load("ndjson"), b"\x00\xFF");
}

#[test]
fn an_export_loads_back_byte_for_byte() {
    let shell = Shell::new();
    shell.db_with_input(&["load", "--value", "line", "-q", "-"], &joined(odd_lines())).ok();
    shell.db(&["put", "empty", ""]).ok();
    let original = shell.db(&["scan", "--format", "hex"]).ok();
    for (export, import) in [("jsonl", "ndjson"), ("csv", "csv")] {
        let exported = shell.db(&["scan", "--format", export]).ok();
        let load = ["--keyspace", import, "load", "-q", "--format", import];
        let fields = ["--key", "key", "--value", "value", "-"];
        shell.db_with_input(&[&load[..], &fields].concat(), &exported).ok();
        let copy = shell.db(&["--keyspace", import, "scan", "--format", "hex"]).ok();
        assert!(copy == original, "{export}");
    }
}

#[test]
fn acknowledged_rows_rise_batch_by_batch() {
    let shell = Shell::new();
    let input: String = (0..95).map(|index| format!("{index:03}\n")).collect();
    let load = ["load", "--sync", "each", "--batch", "20", "--ack", "-"];
    let run = shell.db_with_input(&load, input.as_bytes());
    assert_eq!(run.ok_text(), "20\n40\n60\n80\n95\n");
    let run = shell.db_with_input(&["load", "--batch", "20", "--ack", "-"], input.as_bytes());
    assert_eq!(run.ok_text(), "95\n");
    let run = shell.db_with_input(&["load", "--ack", "-"], b"");
    assert_eq!(run.ok_text(), "");
    assert_eq!(shell.db(&["count"]).ok(), b"95\n");
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let shell = Shell::new();
    let load = ["--db", "db", "load", "--sync", "each", "--batch", "50", "--ack", "-"];
    let mut child = shell.command(&load).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for index in 0_u64.. {
            if writeln!(stdin, "{index:012}").is_err() {
                return; // The program is gone.
            }
        }
    });
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..10 {
        line.clear();
        stdout.read_line(&mut line).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    feeder.join().unwrap();
    let acknowledged: usize = line.trim().parse().unwrap();
    assert_eq!(acknowledged, 500);

    let keys = shell.db(&["scan", "--keys-only", "--format", "raw"]).ok_text();
    let keys: Vec<&str> = keys.lines().collect();
    assert!(keys.len() >= acknowledged, "{} of {acknowledged}", keys.len());
    let is_prefix =
        keys.iter().zip(0..).all(|(key, index): (_, u64)| *key == format!("{index:012}"));
    assert!(is_prefix, "the rows that are there are the first ones of the input");
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
}

#[test]
fn an_interrupted_load_keeps_its_batches_and_gives_130() {
    let shell = Shell::new();
    let load = ["--db", "db", "load", "--sync", "each", "--batch", "10", "--ack", "-"];
    let mut child = shell.command(&load).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", ["line"; 10].join("\n")).unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "10\n");

    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    // The signal has no effect that could be seen from here; the next full batch meets it.
    while writeln!(stdin, "another line").is_ok() {}
    let run = Run::of(child.wait_with_output().unwrap());
    assert!(run.stderr.contains("loaded "), "{run:?}");
    assert_eq!((run.code, run.stderr.contains("error: interrupted")), (130, true), "{run:?}");
    assert_eq!(shell.db(&["get", "line"]).ok(), b"");
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
}

#[test]
fn a_bad_record_ends_the_load_and_what_came_before_is_kept() {
    let shell = Shell::new();
    let input = b"{\"key\":\"a\"}\n{\"key\":\"b\"}\nno json\n{\"key\":\"c\"}\n";
    let load = ["load", "--format", "ndjson", "--value", "none", "--batch", "1", "-"];
    let run = shell.db_with_input(&load, input);
    assert!(run.stderr.contains("loaded 2 rows"), "{run:?}");
    assert_eq!((run.code, run.stderr.contains("line 3")), (2, true), "{run:?}");
    assert_eq!(shell.db(&["scan", "--keys-only"]).ok(), b"a\nb\n");

    // Also what is in one batch with it.
    let load = ["--db", "one", "load", "--format", "ndjson", "--value", "none", "--ack", "input"];
    shell.write("input", input);
    let run = shell.run(&load);
    assert!(run.stderr.contains("loaded 2 rows"), "{run:?}");
    assert_eq!((run.code, run.text()), (2, "2\n"), "{run:?}");
    assert_eq!(shell.run(&["--db", "one", "scan", "--keys-only"]).ok(), b"a\nb\n");

    let run = shell.db_with_input(&["load", "-q", "-"], &vec![b'x'; 70_000]);
    assert!(run.fails(2).contains("record 1: its key has 70000 bytes"));
    let longest = vec![b'x'; 65_535];
    shell.db_with_input(&["load", "-q", "-"], &longest).ok();
    assert_eq!(
        shell.db(&["scan", "--prefix", "x", "--format", "raw", "--keys-only"]).ok().len(),
        65_536
    );
}

#[test]
fn csv_that_is_broken_is_loaded_up_to_there() {
    let shell = Shell::new();
    for (name, broken, said) in [
        ("open", "3,\"c\n4,d\n5,e\n", "a quote of the record on line 4 is not closed"),
        ("more", "3,c,d\n4,d\n", "the record on line 4 has 3 fields, the first one has 2"),
        ("fewer", "3\n4,d\n", "the record on line 4 has 1 field, the first one has 2"),
    ] {
        shell.write("input.csv", format!("id,name\n1,a\n2,b\n{broken}").as_bytes());
        let load = ["--db", name, "load", "--format", "csv", "--value", "name", "input.csv"];
        let run = shell.run(&load);
        assert!(run.stderr.contains("loaded 2 rows") && run.stderr.contains(said), "{run:?}");
        assert_eq!(run.code, 2);
        assert_eq!(shell.run(&["--db", name, "scan"]).ok_text(), "1\ta\n2\tb\n");
    }
}

#[test]
fn a_file_that_is_not_there_creates_nothing() {
    let shell = Shell::new();
    assert!(shell.db(&["load", "absent.txt"]).fails(3).contains("absent.txt"));
    assert!(!shell.path("db").exists());
}

#[test]
fn a_table_that_is_not_there_creates_nothing() {
    let shell = Shell::new();
    assert!(shell.db(&["ingest", "absent.tbl"]).fails(3).contains("absent.tbl"));
    assert!(!shell.path("db").exists());
}

#[test]
fn tables_are_written_without_a_database_and_ingested_together() {
    let shell = Shell::new();
    let distinct: Vec<Vec<u8>> =
        odd_lines().into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let (low, high) = distinct.split_at(distinct.len() / 2);
    shell.write("low", &joined(low.to_vec()));
    shell.write("high", &joined(high.to_vec()));
    let write = |table: &str, input: &str| {
        let run = shell.run(&["load", "--table", table, "--codec", "lz4", input]);
        let summary = run.stderr.clone();
        run.ok();
        assert!(summary.starts_with("wrote ") && summary.contains(" rows, "), "{summary}");
    };
    write("low.tbl", "low");
    write("high.tbl", "high");
    let shown = shell.run(&["inspect", "low.tbl"]).ok_text();
    assert!(shown.contains("made outside") && shown.contains("properties"), "{shown}");
    shell.run(&["load", "--table", "low.tbl", "low"]).fails(3);
    shell.write("unsorted", b"b\na\n");
    let stderr = shell.run(&["load", "--table", "bad.tbl", "unsorted"]).fails(2);
    assert!(stderr.contains("record 2") && stderr.contains("nothing was written"), "{stderr}");
    assert!(!shell.path("bad.tbl").exists());
    for (keyspace, structure) in [("tables", "lsm"), ("intervals", "flex")] {
        shell.db(&["keyspaces", "create", keyspace, "--structure", structure]).ok();
        let ingest = ["--keyspace", keyspace, "ingest", "high.tbl", "low.tbl"];
        let refused = shell.db(&[&ingest[..], &["low.tbl"]].concat()).fails(2);
        assert!(refused.contains("overlaps"), "{refused}");
        let run = shell.db(&ingest);
        assert!(run.stderr.starts_with("ingested "), "{run:?}");
        run.ok();
        let scan = ["--keyspace", keyspace, "scan", "--keys-only", "--format", "raw"];
        assert_eq!(shell.db(&scan).ok(), joined(distinct.iter().cloned()));
    }
    shell.db(&["--keyspace", "tables", "ingest", "--move", "--trust", "low.tbl"]).ok();
    assert!(!shell.path("low.tbl").exists());
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
    shell.write("high.tbl", b"no table at all, but long enough to be one: ".repeat(9).as_slice());
    let refused = shell.db(&["--keyspace", "tables", "ingest", "high.tbl"]).fails(2);
    assert!(refused.contains("is no table"), "{refused}");
}
