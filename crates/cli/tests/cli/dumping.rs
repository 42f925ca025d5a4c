//! Dumps written and loaded, views, and differences over all keyspaces.

use crate::shell::Shell;

/// Three keyspaces, one with odd options and a large value, one empty.
fn shell_with_keyspaces() -> Shell {
    let shell = Shell::new();
    shell.db(&["put", "plain", "text"]).ok();
    shell.db(&["put", "--key-format", "hex", "ff0009", "tab\there\n"]).ok();
    let create = ["keyspaces", "create", "films", "--codec", "lz4", "--interval-size", "4KiB"];
    shell.db(&[&create[..], &["--value-separation", "64B", "--pace", "0.25"]].concat()).ok();
    let film: Vec<u8> = (0..3_000_000_u32).flat_map(|i| i.to_le_bytes()[..1].to_vec()).collect();
    shell.db_with_input(&["--keyspace", "films", "put", "long", "-"], &film).ok();
    shell.db(&["--keyspace", "films", "put", "medium", &"m".repeat(100_000)]).ok();
    shell.db(&["--keyspace", "films", "put", "short", "s"]).ok();
    shell.db(&["keyspaces", "create", "empty", "--merge", "of another\tprogram"]).ok();
    shell
}

#[test]
fn everything_comes_back_with_options_and_to_the_byte() {
    let shell = shell_with_keyspaces();
    let dump = shell.db(&["dump", "--all", "-q"]).ok();
    shell.write("all.dump", &dump);
    // Known by its first line; the names of keyspaces are in it.
    let loaded = shell.run(&["--db", "copy", "load", "all.dump", "--ack"]);
    assert!(loaded.stderr.starts_with("loaded 5 rows in "), "{loaded:?}");
    assert_eq!(loaded.ok_text(), "5\n");
    assert_eq!(shell.db(&["diff", "copy", "--all"]).ok_text(), "");
    assert_eq!(shell.run(&["--db", "copy", "dump", "--all", "-q"]).ok(), dump);
    let options = |db: &str| -> Vec<String> {
        let list = shell.run(&["--db", db, "keyspaces", "--format", "csv"]).ok_text();
        // Without their numbers, which are given anew.
        list.lines().map(|line| line.replace(",2,", ",").replace(",3,", ",")).collect()
    };
    assert_eq!(options("copy"), options("db"));
    assert!(shell.run(&["--db", "copy", "check"]).ok_text().starts_with("ok: "));
}

#[test]
fn what_was_merged_is_dumped_compared_and_viewed_as_the_value_that_it_makes() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "log", "--merge", "append"]).ok();
    let merge = |key: &str, operand: &str| {
        shell.db(&["--keyspace", "log", "merge", key, operand]).ok();
    };
    shell.db(&["--keyspace", "log", "put", "a", "one"]).ok();
    for key in ["a", "b"] {
        merge(key, " two");
        merge(key, " three");
    }
    let dump = shell.db(&["--keyspace", "log", "dump", "-q"]).ok_text();
    let lines: Vec<&str> = dump.lines().collect();
    assert!(lines[1].ends_with("\tmerge_operator=append"), "{dump}");
    assert_eq!(lines[2..], ["put\ta\tone two three", "put\tb\t two three", "end\t2"]);
    shell.write("log.dump", dump.as_bytes());
    shell.run(&["--db", "copy", "load", "-q", "log.dump"]).ok();
    assert_eq!(shell.db(&["--keyspace", "log", "diff", "copy"]).ok_text(), "");
    let differs = |key: &str| {
        shell.run(&["--db", "copy", "--keyspace", "log", "merge", key, "!"]).ok();
        let diff = shell.db(&["--keyspace", "log", "diff", "copy", "-q"]);
        (diff.code, diff.text().to_owned())
    };
    let (code, text) = differs("b");
    assert_eq!((code, &*text), (1, "-\tb\t two three\n+\tb\t two three!\n"));
    let view = shell.db(&["--keyspace", "log", "view"]).ok_text();
    assert!(view.contains("one two three"), "{view}");
    shell.db(&["check"]).ok();
}

#[test]
fn a_range_of_one_keyspace_goes_to_another() {
    let shell = shell_with_keyspaces();
    let dump = shell.db(&["dump", "--prefix", "p", "--stamps", "-q"]).ok_text();
    let lines: Vec<&str> = dump.lines().collect();
    assert_eq!(lines[0], "lithe-dump\t1\tvalues\tstamps");
    assert!(lines[1].starts_with("keyspace\tdefault\tstructure=flex\tcodec=none\t"), "{dump}");
    assert!(lines[2].starts_with("put\tplain\ttext\t1"), "{dump}");
    assert_eq!(lines[3..], ["end\t1"]);
    shell.db_with_input(&["--keyspace", "films", "load", "-"], dump.as_bytes()).ok();
    assert_eq!(shell.db(&["--keyspace", "films", "get", "plain"]).ok_text(), "text");

    let all = shell.db(&["dump", "--all", "-q"]).ok();
    let refused = shell.db_with_input(&["--keyspace", "one", "load", "-q", "-"], &all);
    assert!(refused.fails(2).contains("a second keyspace"));
}

#[test]
fn a_mistake_keeps_the_batches_before_it_and_is_said_with_its_line() {
    let shell = Shell::new();
    let mut dump = "lithe-dump\t1\tvalues\nkeyspace\tk\n".to_owned();
    for number in 0..10 {
        dump += &format!("put\tkey{number}\tvalue\n");
    }
    let load = ["load", "--batch", "4", "--format", "dump", "-"];
    let cut = shell.db_with_input(&load, dump.as_bytes());
    assert!(cut.stderr.starts_with("loaded 10 rows"), "{cut:?}");
    assert!(cut.stderr.contains("line 13: there is no line"), "{cut:?}");
    assert_eq!(cut.code, 2);
    assert_eq!(shell.db(&["--keyspace", "k", "count"]).ok_text(), "10\n");
    // A large value that is cut short leaves nothing of it.
    let begun = format!("{dump}begin\tlarge\t2000000\nmore\tabc\n");
    assert_eq!(shell.db_with_input(&load, begun.as_bytes()).code, 2);
    assert_eq!(shell.db(&["--keyspace", "k", "count"]).ok_text(), "10\n");
    shell.db(&["check"]).ok();
    for wrong in [&["--key", "1"][..], &["--ingest"], &["--no-header"]] {
        let arguments = [&["load", "--format", "dump"][..], wrong, &["-"]].concat();
        shell.db_with_input(&arguments, dump.as_bytes()).fails(2);
    }
    // Whoever wants the lines of a dump as keys says so.
    let lines = ["--keyspace", "lines", "load", "--format", "lines", "-"];
    shell.db_with_input(&lines, dump.as_bytes()).ok();
    assert_eq!(shell.db(&["--keyspace", "lines", "count"]).ok_text(), "12\n");
}

#[test]
fn a_view_is_for_people() {
    let shell = shell_with_keyspaces();
    let view = shell.db(&["view", "--all"]).ok_text();
    assert!(view.starts_with("keyspace \"default\" (1): 2 keys\n"), "{view}");
    assert!(view.contains("\nkeyspace \"empty\" (3): 0 keys\n"), "{view}");
    assert!(view.contains("\\xff\\x00\\x09"), "{view}");
    let long = view.lines().find(|line| line.contains("long")).unwrap();
    assert!(long.contains("2.9 MiB") && long.ends_with(".."), "{long}");
    assert!(view.lines().all(|line| line.len() < 400), "{view}");

    let films = ["--keyspace", "films", "view", "--hashes", "--stamps"];
    let view = shell.db(&films).ok_text();
    let lines: Vec<&str> = view.lines().collect();
    assert_eq!(lines.len(), 4, "{view}");
    let dump = shell.db(&["--keyspace", "films", "dump", "--hashes", "-q"]).ok_text();
    for key in ["long", "medium", "short"] {
        let hash = dump.lines().find(|line| line.starts_with(&format!("hash\t{key}\t"))).unwrap();
        let hash = hash.rsplit('\t').next().unwrap();
        let row = lines.iter().find(|line| line.contains(key)).unwrap();
        assert!(row.contains(hash) && row.contains(" +"), "{row}");
    }
    let keys = shell.db(&["--keyspace", "films", "view", "--keys-only", "--limit", "2"]).ok_text();
    assert_eq!(keys.lines().count(), 3, "{keys}");
    assert!(!keys.contains("short") && !keys.contains("value"), "{keys}");
    let full = shell.db(&["--keyspace", "films", "view", "--full", "--prefix", "medium"]).ok_text();
    assert!(full.contains(&"m".repeat(100_000)));
}

#[test]
fn differences_over_all_keyspaces() {
    let shell = shell_with_keyspaces();
    let lithe = env!("CARGO_BIN_EXE_lithe");
    let line = format!("{lithe} --db db dump --all -q | {lithe} --db copy load -q -");
    assert!(shell.shell_command(&line).output().unwrap().status.success());
    shell.run(&["--db", "copy", "keyspaces", "drop", "empty", "--yes"]).ok();
    shell.run(&["--db", "copy", "--keyspace", "extra", "put", "e", "1"]).ok();
    shell.run(&["--db", "copy", "--keyspace", "films", "put", "medium", "n"]).ok();
    let diff = |arguments: &[&str]| shell.db(&[&["diff", "copy", "-q"], arguments].concat());
    let all = diff(&["--all", "--hashes"]);
    let medium = "-\tfilms\tmedium\t100000\t";
    let lines: Vec<&str> = all.text().lines().collect();
    assert_eq!(lines[..2], ["-\tempty", "+\textra"], "{all:?}");
    assert!(lines[2].starts_with("+\textra\te\t1\t"), "{all:?}");
    assert!(lines[3].starts_with(medium) && lines[4].starts_with("+\tfilms\tmedium\t1\t"));
    assert_eq!((all.code, lines.len()), (1, 5));
    assert!(all.stderr.contains("2 keys and 2 keyspaces"), "{}", all.stderr);
    let first = diff(&["--all", "--first", "--format", "jsonl"]);
    assert_eq!((first.code, first.text()), (1, "{\"keyspace\":\"empty\",\"only\":\"left\"}\n"));
    let keys = diff(&["--all", "--keys-only", "--format", "jsonl"]);
    let expected = "{\"keyspace\":\"empty\",\"only\":\"left\"}\n\
                    {\"keyspace\":\"extra\",\"only\":\"right\"}\n\
                    {\"keyspace\":\"extra\",\"key\":\"e\",\"right\":true}\n";
    assert_eq!((keys.code, keys.text()), (1, expected));

    // A value of more than a mebibyte is written piece by piece.
    shell.run(&["--db", "copy", "--keyspace", "films", "delete", "long"]).ok();
    let long = shell.db(&["--keyspace", "films", "diff", "copy", "-q", "--prefix", "l"]);
    assert_eq!((long.code, long.text().lines().count()), (1, 1));
    let jsonl = ["--keyspace", "films", "diff", "copy", "-q", "--prefix", "l", "--format", "jsonl"];
    let long = shell.db(&jsonl);
    assert!(
        long.text().starts_with("{\"key\":\"long\",\"left\":{\"hex\":\"000102"),
        "{}",
        long.code
    );
    assert_eq!(long.text().len(), "{\"key\":\"long\",\"left\":{\"hex\":\"\"}}\n".len() + 6_000_000);
    assert_eq!(diff(&["--all", "--other-keyspace", "x"]).code, 2);
}
