//! Single keys, keyspaces, usage and exit codes.

use crate::shell::Shell;

#[test]
fn a_value_comes_back_byte_for_byte() {
    let shell = Shell::new();
    let every_byte: Vec<u8> = (0..=255).collect();
    shell.db_with_input(&["put", "bytes", "-"], &every_byte).ok();
    assert_eq!(shell.db(&["get", "bytes"]).ok(), every_byte);
    assert_eq!(shell.db(&["get", "bytes", "--format", "raw"]).ok(), every_byte);

    shell
        .db(&["put", "--key-format", "hex", "00ff0a", "--value-format", "escaped", r"\xfe\\"])
        .ok();
    let hex = shell.db(&["get", "--key-format", "escaped", r"\x00\xff\n", "--format", "hex"]).ok();
    assert_eq!(hex, b"fe5c\n");
    let json = shell.db(&["get", "--key-format", "hex", "00FF0A", "--format", "jsonl"]).ok_text();
    assert_eq!(json, "{\"key\":{\"hex\":\"00ff0a\"},\"value\":{\"hex\":\"fe5c\"}}\n");
}

#[test]
fn a_key_that_is_absent_or_deleted_gives_1() {
    let shell = Shell::new();
    shell.db(&["put", "k", "v"]).ok();
    assert_eq!(shell.db(&["get", "k"]).ok(), b"v");
    assert!(shell.db(&["get", "other"]).fails(1).contains("\"other\""));
    shell.db(&["delete", "k"]).ok();
    shell.db(&["get", "k"]).fails(1);
    shell.db(&["delete", "k"]).ok();
    shell.db(&["--keyspace", "nope", "get", "k"]).fails(1);
}

#[test]
fn a_range_is_deleted_and_nothing_beside_it() {
    let shell = Shell::new();
    for key in ["a1", "a2", "b1", "c1"] {
        shell.db(&["put", key, "v"]).ok();
    }
    assert!(shell.db(&["delete"]).fails(2).contains("--all"));
    assert!(shell.db(&["delete", "a1", "--prefix", "a"]).fails(2).contains("--prefix"));
    shell.db(&["delete", "--from", "b", "--to", "a"]).fails(2);
    shell.db(&["delete", "--prefix", "a", "--from", "a2", "--yes"]).ok();
    shell.db(&["delete", "--from", "c", "--yes"]).ok();
    assert_eq!(shell.db(&["scan", "--keys-only", "--format", "raw"]).ok(), b"a1\nb1\n");
    assert!(shell.db(&["delete", "--all"]).fails(2).contains("--yes"));
    assert_eq!(shell.db(&["count"]).ok(), b"2\n");
    shell.db(&["delete", "--all", "--yes"]).ok();
    assert_eq!(shell.db(&["count"]).ok(), b"0\n");
}

#[test]
fn operands_are_merged_by_what_the_keyspace_was_created_with() {
    let shell = Shell::new();
    shell.db(&["put", "k", "v"]).ok();
    assert!(shell.db(&["merge", "k", "w"]).fails(2).contains("no merge operator"));
    shell.db(&["--keyspace", "nope", "merge", "k", "w"]).fails(1);
    shell.db(&["keyspaces", "create", "visits", "--merge", "counter"]).ok();
    assert!(shell.db(&["keyspaces", "--format", "jsonl"]).ok_text().contains("\"counter\""));
    shell.db(&["--keyspace", "visits", "merge", "home", "--add", "5"]).ok();
    shell.db(&["--keyspace", "visits", "merge", "home", "--add", "-2"]).ok();
    let hex = shell.db(&["--keyspace", "visits", "get", "home", "--format", "hex"]).ok();
    assert_eq!(hex, b"0300000000000000\n");
    shell.db(&["--keyspace", "visits", "merge", "home", "three"]).fails(2);
    shell.db(&["merge", "k"]).fails(2);
    shell.db(&["keyspaces", "create", "log", "--merge", "append"]).ok();
    shell.db_with_input(&["--keyspace", "log", "tx"], b"put k a\nmerge k b\nmerge k c\n").ok();
    assert_eq!(shell.db(&["--keyspace", "log", "get", "k"]).ok(), b"abc");
    shell.db(&["keyspaces", "create", "far", "--merge", "of-another-program"]).ok();
    assert!(
        shell.db(&["--keyspace", "far", "merge", "k", "a"]).fails(2).contains("another-program")
    );
}

#[test]
fn keys_expire_when_it_was_said() {
    let shell = Shell::new();
    shell.db(&["put", "gone", "v", "--expires", "2001-02-03T04:05:06Z"]).ok();
    shell.db(&["get", "gone"]).fails(1);
    shell.db(&["put", "late", "v", "--expires", "2999-12-31T23:59:59.5+01:00"]).ok();
    let row = shell.db(&["get", "late", "--expiry"]).ok_text();
    assert_eq!(row, "late\tv\t2999-12-31T22:59:59.500Z\n");
    shell.db(&["put", "soon", "v", "--ttl", "10h"]).ok();
    assert!(shell.db(&["get", "soon", "--expiry"]).ok_text().ends_with("Z\n"));
    shell.db(&["expire", "soon", "--never"]).ok();
    assert_eq!(shell.db(&["get", "soon", "--expiry"]).ok_text(), "soon\tv\t-\n");
    shell.db(&["expire", "soon", "--at", "2999-01-01T00:00:00Z"]).ok();
    let rows = shell.db(&["scan", "--expiry", "--format", "jsonl", "--keys-only"]).ok_text();
    assert!(rows.contains("{\"key\":\"soon\",\"expires\":\"2999-01-01T00:00:00.000Z\"}"), "{rows}");
    shell.db(&["expire", "soon", "--ttl", "0s"]).ok();
    assert_eq!(shell.db(&["count"]).ok(), b"1\n");
    assert!(shell.db(&["expire", "soon", "--never"]).fails(1).contains("\"soon\""));
    shell.db(&["expire", "late"]).fails(2);
    shell.db(&["put", "x", "v", "--ttl", "soon"]).fails(2);
    shell.db(&["put", "x", "v", "--ttl", "1s", "--expires", "2999-01-01T00:00:00Z"]).fails(2);
    let script = b"put-ttl a 1 10h\nput-until b 2 2001-01-01T00:00:00Z\nexpire late never\n";
    shell.db_with_input(&["tx"], script).ok();
    let rows = shell.db(&["scan", "--expiry"]).ok_text();
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.ends_with("late\tv\t-\n"), "{rows}");
    shell.db_with_input(&["tx"], b"expire nothing 1h\n").fails(1);

    shell.db(&["keyspaces", "create", "sessions", "--ttl", "36h"]).ok();
    shell.db(&["--keyspace", "sessions", "put", "k", "v"]).ok();
    assert!(shell.db(&["keyspaces"]).ok_text().contains("36h"));
    assert!(shell.db(&["keyspaces", "--format", "jsonl"]).ok_text().contains("129600000"));
    shell.db(&["keyspaces", "create", "x", "--ttl", "1h", "--merge", "min"]).fails(2);
    shell.db(&["compact"]).ok();
    let stats = shell.db(&["stats", "--format", "json"]).ok_text();
    assert!(stats.contains("\"expiring_entries\":1"), "{stats}");
    // A dump has the moment, and loads it.
    let dump = shell.db(&["dump", "--all", "-q"]).ok_text();
    assert!(dump.contains("\tttl=36h") && dump.contains("\nuntil\t"), "{dump}");
    shell.write("all.dump", dump.as_bytes());
    shell.run(&["--db", "copy", "load", "all.dump"]).ok();
    assert_eq!(shell.run(&["--db", "copy", "dump", "--all", "-q"]).ok_text(), dump);
}

#[test]
fn a_script_happens_as_a_whole_or_not_at_all() {
    let shell = Shell::new();
    let script = b"# accounts\nput ada 10\nput a\\x20b 1\n\nkeyspace log\nput 1 opened\n";
    let told = shell.db_with_input(&["tx"], script).ok_text();
    assert!(told.starts_with("3 operations committed as "), "{told}");
    assert_eq!(shell.db(&["get", "a b"]).ok(), b"1");
    assert_eq!(shell.db(&["--keyspace", "log", "get", "1"]).ok(), b"opened");
    let transfer = b"expect ada 10\nexpect-absent bob\nput ada 3\nput bob 7\ndelete a\\x20b\n";
    let told = shell.db_with_input(&["tx", "--format", "json"], transfer).ok_text();
    assert!(told.starts_with("{\"operations\":3,\"stamp\":"), "{told}");
    assert!(shell.db_with_input(&["tx"], transfer).fails(1).contains("line 1"));
    assert_eq!(shell.db(&["get", "ada"]).ok(), b"3", "nothing was done");
    assert!(shell.db_with_input(&["tx"], b"put x 1\nput y\n").fails(2).contains("line 2"));
    shell.db(&["get", "x"]).fails(1);
    shell.db_with_input(&["tx", "-"], b"delete-range a c\ndelete-prefix z\n").ok();
    assert_eq!(shell.db(&["count"]).ok(), b"0\n");
}

#[test]
fn commits_are_printed_with_what_was_kept_with_them() {
    let shell = Shell::new();
    shell.db(&["commits"]).fails(3);
    shell.db_with_input(&["tx"], b"put a 1\n").ok();
    assert_eq!(shell.db(&["commits", "--keep", "32MiB"]).ok_text().lines().count(), 1);
    let told = shell.db_with_input(&["tx"], b"payload by\\x20ada\nput a 2\nput b 2\n").ok_text();
    let stamp = told.trim_end().rsplit(' ').next().unwrap().to_owned();
    shell.db_with_input(&["tx"], b"delete a\n").ok();
    let all = shell.db(&["commits"]).ok_text();
    assert_eq!(all.lines().nth(1), Some(format!("{stamp}\t2\tby ada").as_str()));
    assert_eq!(all.lines().count(), 3);
    let after = shell.db(&["commits", "--after", &stamp, "--format", "jsonl"]).ok_text();
    assert!(after.ends_with(",\"operations\":1}\n") && after.lines().count() == 1, "{after}");
    let one = shell.db(&["commits", "--from", &stamp, "--to", &stamp, "--format", "jsonl"]);
    assert!(one.ok_text().contains("\"payload\":\"by ada\""));
    assert!(shell.db(&["commits", "--from", "x"]).fails(2).contains("no stamp"));
    shell.db(&["check"]).ok();
}

#[test]
fn the_newest_value_is_returned_after_many_reopenings() {
    let shell = Shell::new();
    for round in 0..20 {
        shell.db(&["put", "k", &round.to_string()]).ok();
    }
    assert_eq!(shell.db(&["get", "k"]).ok(), b"19");
}

#[test]
fn wrong_usage_gives_2() {
    let shell = Shell::new();
    for arguments in [
        &["get"][..],
        &["nonsense"],
        &["get", "k"],
        &["--db", "db", "put", "k"],
        &["--db", "db", "scan", "--format", "yaml"],
        &["--db", "db", "scan", "--from", "0", "--key-format", "hex"],
        &["--db", "db", "load", "--batch", "0", "x"],
        &["--db", "db", "keyspaces", "drop", "default"],
    ] {
        let run = shell.run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert!(run.stderr.starts_with("error: ") && run.stdout.is_empty(), "{run:?}");
    }
    assert!(!shell.path("db").exists());
}

#[test]
fn reading_never_creates_a_database() {
    let shell = Shell::new();
    for arguments in
        [&["get", "k"][..], &["scan"], &["count"], &["stats"], &["check"], &["keyspaces"]]
    {
        let text = shell.db(arguments).fails(3);
        assert!(text.contains("db") && text.contains("--db"), "{arguments:?}: {text}");
    }
    assert!(!shell.path("db").exists());
}

#[test]
fn the_environment_names_the_database_and_the_option_goes_before_it() {
    let shell = Shell::new();
    shell.run(&["--db", "one", "put", "k", "1"]).ok();
    shell.run(&["put", "k", "2", "-d", "two"]).ok();
    let output = |arguments: &[&str]| {
        shell.command(arguments).env("LITHE_DB", "one").output().unwrap().stdout
    };
    assert_eq!(output(&["get", "k"]), b"1");
    assert_eq!(output(&["get", "k", "--db", "two"]), b"2");
}

#[test]
fn an_open_database_is_locked() {
    let shell = Shell::new();
    let db = lithedb::Db::open(shell.path("db")).unwrap();
    for arguments in [&["put", "k", "v"][..], &["count"], &["check"]] {
        let text = shell.db(arguments).fails(3);
        assert!(text.contains("locked") && text.contains("next: "), "{text}");
    }
    db.close().unwrap();
    shell.db(&["put", "k", "v"]).ok();
}

#[test]
fn a_keyspace_keeps_the_options_it_was_created_with() {
    let shell = Shell::new();
    let create = ["keyspaces", "create", "tuned", "--codec", "lz4", "--interval-size", "4KiB"];
    let more = ["--segment-size", "64KiB", "--pace", "0.35", "--fan-in", "0"];
    let last = ["--memtable-size", "1MiB", "--value-separation", "off", "--merge", "append"];
    shell.db(&[&create[..], &more, &last].concat()).ok();
    shell.db(&["keyspaces", "create", "plain"]).ok();
    let list = shell.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    let tuned = "{\"name\":\"tuned\",\"id\":1,\"structure\":\"flex\",\"codec\":\"lz4\",\
        \"interval_size\":4096,\"segment_size\":65536,\"consolidation_pace\":0.35,\
        \"delta_fan_in\":0,\"memtable_size\":1048576,\"value_separation\":null,\
        \"merge_operator\":\"append\",\"ttl_millis\":null}";
    assert!(list.lines().any(|line| line == tuned), "{list}");
    let table = shell.db(&["keyspaces"]).ok_text();
    assert!(table.contains("0.35") && table.contains("by budget"), "{table}");
    let csv = shell.db(&["keyspaces", "--format", "csv"]).ok_text();
    assert!(csv.contains("tuned,1,flex,lz4,4096,65536,0.35,0,1048576,,append,,,,\n"), "{csv}");

    // What it does: lines that repeat themselves take a fraction of their size.
    let rows: String =
        (0..20_000).map(|index| format!("{index:06} {}\n", "lithe ".repeat(20))).collect();
    let load = ["--keyspace", "tuned", "load", "-q", "--value", "line", "-"];
    shell.db_with_input(&load, rows.as_bytes()).ok();
    let stats = shell.db(&["stats", "--format", "json"]).ok_text();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let keyspaces = stats["keyspaces"].as_array().unwrap();
    let tuned = keyspaces.iter().find(|keyspace| keyspace["name"] == "tuned").unwrap();
    let live = tuned["live_bytes"].as_u64().unwrap();
    assert!(live > 0 && live < rows.len() as u64 / 2, "{tuned}");
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
}

#[test]
fn a_keyspace_of_tables_keeps_its_own_options() {
    let shell = Shell::new();
    let create = ["keyspaces", "create", "tuned", "--structure", "lsm", "--codec", "snappy"];
    let style = ["--level0-trigger", "6", "--level-ratio", "2.5", "--level-codec", "0=none"];
    let sizes = ["--table-size", "1MiB", "--block-size", "8KiB", "--restart-interval", "8"];
    let filters = ["--filter-bits", "12", "--filter-prefix-len", "4", "--pin-indexes"];
    let last = ["--level-codec", "6=lz4", "--ttl", "1h"];
    shell.db(&[&create[..], &style, &sizes, &filters, &last].concat()).ok();
    let tiered = ["keyspaces", "create", "runs", "--structure", "lsm", "--compaction", "tiered"];
    let buckets = ["--bucket-low", "0.4", "--bucket-high", "1.6", "--threshold", "8"];
    let limits = ["--run-count-max", "20", "--garbage-max", "0.5"];
    shell.db(&[&tiered[..], &buckets, &limits].concat()).ok();
    shell.db(&["keyspaces", "create", "plain"]).ok();
    let list = shell.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    let tuned = "{\"name\":\"tuned\",\"id\":1,\"structure\":\"lsm\",\"codec\":\"snappy\",\
        \"compaction\":\"leveled\",\"level0_trigger\":6,\"level_ratio\":2.5,\
        \"table_size\":1048576,\"block_size\":8192,\"restart_interval\":8,\
        \"filter_bits\":12,\"filter_prefix_len\":4,\"pin_indexes\":true,\
        \"codec_0\":\"none\",\"codec_6\":\"lz4\",\"memtable_size\":null,\
        \"value_separation\":4096,\"merge_operator\":null,\"ttl_millis\":3600000}";
    assert!(list.lines().any(|line| line == tuned), "{list}");
    let runs = "\"compaction\":\"tiered\",\"bucket_low\":0.4,\"bucket_high\":1.6,\
        \"threshold\":8,\"run_count_max\":20,\"garbage_max\":0.5";
    assert!(list.contains(runs), "{list}");
    let table = shell.db(&["keyspaces"]).ok_text();
    assert!(table.contains("compaction=leveled level0_trigger=6 level_ratio=2.5"), "{table}");
    let csv = shell.db(&["keyspaces", "--format", "csv"]).ok_text();
    assert!(csv.contains("tuned,1,lsm,snappy,,,,,,4096,,3600000,,,compaction=leveled "), "{csv}");
}

#[test]
fn large_values_lie_in_value_files_and_their_room_is_given_back() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "default", "--value-separation", "1KiB"]).ok();
    for round in 0..4 {
        let value = format!("{round}").repeat(20_000);
        shell.db(&["put", "film", &value]).ok();
    }
    let stats: serde_json::Value =
        serde_json::from_str(&shell.db(&["stats", "--format", "json"]).ok_text()).unwrap();
    assert!(stats["values"]["on_disk_bytes"].as_u64().unwrap() >= 20_000, "{stats}");
    assert!(shell.db(&["vacuum"]).ok_text().starts_with("reclaimed "));
    assert_eq!(shell.db(&["get", "film"]).ok(), "3".repeat(20_000).as_bytes());
    assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
}

#[test]
fn options_that_cannot_be_create_nothing() {
    let shell = Shell::new();
    for (option, value, says) in [
        ("--interval-size", "1", "interval_size is 1"),
        ("--interval-size", "5GiB", "too large"),
        ("--segment-size", "12MB", "KiB"),
        ("--pace", "9", "consolidation_pace is 9"),
        ("--pace", "NaN", "consolidation_pace is NaN"),
        ("--fan-in", "1", "delta_fan_in is 1"),
        ("--codec", "zip", "lz4"),
        ("--memtable-size", "1KiB", "memtable_size is 1024"),
        ("--value-separation", "1B", "value_separation is 1"),
        ("--codec", "zstd:23", "levels are 1 to 22"),
        ("--table-size", "1MiB", "structure flex has no options of structure lsm"),
        ("--level-codec", "7=lz4", "levels are 0 to 6"),
        ("--level-codec", "6", "as in 6=lz4"),
        ("--threshold", "4", "add --compaction tiered"),
    ] {
        let text = shell.db(&["keyspaces", "create", "k", option, value]).fails(2);
        assert!(text.contains(says), "{option} {value}: {text}");
    }
    for (options, says) in [
        (&["--interval-size", "4KiB"][..], "structure lsm has no interval_size"),
        (&["--table-size", "512B"], "table_size is 512"),
        (&["--filter-bits", "33"], "filter_bits is 33"),
        (&["--level-ratio", "1"], "level_ratio is 1"),
        (&["--compaction", "tiered", "--level-ratio", "4"], "has none"),
        (&["--compaction", "tiered", "--threshold", "1"], "threshold is 1"),
    ] {
        let create = ["keyspaces", "create", "k", "--structure", "lsm"];
        let text = shell.db(&[&create[..], options].concat()).fails(2);
        assert!(text.contains(says), "{options:?}: {text}");
    }
    if !lithedb::Codec::zstd().is_available() {
        let text = shell.db(&["keyspaces", "create", "k", "--codec", "zstd"]).fails(2);
        assert!(text.contains("built") || text.contains("build it with"), "{text}");
    }
    assert!(!shell.path("db").exists());
}

#[test]
fn keyspaces_are_created_listed_renamed_and_dropped() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "users", "--structure", "flex"]).ok();
    shell.db(&["--keyspace", "users", "put", "k", "in users"]).ok();
    shell.db(&["put", "k", "in default"]).ok();
    shell.db(&["keyspaces", "create", "users"]).fails(2);
    let mut names = shell.db(&["keyspaces", "--format", "raw"]).ok_text();
    assert!(names.lines().any(|name| name == "users"), "{names}");

    shell.db(&["keyspaces", "rename", "users", "people"]).ok();
    assert_eq!(shell.db(&["--keyspace", "people", "get", "k"]).ok(), b"in users");
    shell.db(&["keyspaces", "drop", "people", "--yes"]).ok();
    shell.db(&["--keyspace", "people", "get", "k"]).fails(1);
    shell.db(&["keyspaces", "drop", "people", "--yes"]).fails(1);
    assert_eq!(shell.db(&["get", "k"]).ok(), b"in default");

    names = shell.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    let list: Vec<serde_json::Value> =
        names.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(list.len(), 1);
    assert_eq!((&list[0]["name"], &list[0]["structure"]), (&"default".into(), &"flex".into()));
    assert!(shell.db(&["keyspaces"]).ok_text().contains("default"));
}

#[test]
fn colours_are_for_terminals_or_on_demand() {
    let shell = Shell::new();
    let has_colour = |arguments: &[&str]| shell.db(arguments).stderr.contains('\x1b');
    assert!(!has_colour(&["get", "k"]));
    assert!(has_colour(&["get", "k", "--color", "always"]));
    assert!(!has_colour(&["get", "k", "--color", "never"]));
}

#[test]
fn version_completions_and_help_need_no_database() {
    let shell = Shell::new();
    assert!(shell.run(&["version"]).ok_text().starts_with("lithe "));
    assert!(shell.run(&["completions", "bash"]).ok_text().contains("complete"));
    let help = shell.run(&["--help"]).ok_text();
    assert!(help.contains("130  interrupted") && help.contains("demo"), "{help}");
    assert!(shell.run(&["load", "--help"]).ok_text().contains("Examples:"));
}

#[test]
fn a_keyspace_or_a_range_of_it_is_compacted_and_nothing_else() {
    let shell = Shell::new();
    for name in ["default", "users"] {
        shell.db(&["keyspaces", "create", name, "--structure", "lsm"]).ok();
        let rows: Vec<u8> = (0..3000).flat_map(|n| format!("{n:05}\n").into_bytes()).collect();
        for _ in 0..2 {
            let load = ["--keyspace", name, "load", "-q", "--value", "line-number", "-"];
            shell.db_with_input(&load, &rows).ok();
        }
    }
    let run_count = |name: &str| {
        let tables = shell.db(&["--keyspace", name, "tables", "--format", "jsonl"]).ok_text();
        tables.lines().count()
    };
    assert_eq!([run_count("default"), run_count("users")], [2, 2]);
    shell.db(&["compact", "--from", "b", "--to", "a"]).ok();
    shell.db(&["compact", "--prefix", "x"]).ok();
    assert_eq!([run_count("default"), run_count("users")], [2, 2]);
    shell.db(&["compact", "--prefix", "000"]).ok();
    assert_eq!([run_count("default"), run_count("users")], [1, 2]);
    let told = shell.db(&["--keyspace", "users", "compact"]);
    assert!(told.stderr.contains(" before, ") && told.stderr.contains(" written"), "{told:?}");
    assert_eq!(run_count("users"), 1);
    shell.db(&["--keyspace", "nobody", "compact"]).fails(1);
    shell.db(&["compact", "--key-format", "hex", "--from", "xyz"]).fails(2);
    shell.db(&["compact"]).ok();
    assert_eq!(shell.db(&["count"]).ok(), b"3000\n");
}

#[test]
fn ranges_come_to_counts_sums_and_extremes() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "visits", "--merge", "counter"]).ok();
    let visits = |args: &[&str]| shell.db(&[&["--keyspace", "visits"], args].concat());
    for (key, number) in [("a1", "5"), ("a2", "-7"), ("b1", "40")] {
        visits(&["merge", key, "--add", number]).ok();
    }
    assert_eq!(visits(&["reduce", "sum"]).ok(), b"38\n");
    assert_eq!(visits(&["reduce", "sum", "--prefix", "a"]).ok(), b"-2\n");
    assert_eq!(visits(&["reduce", "count", "--from", "a2"]).ok(), b"2\n");
    assert_eq!(visits(&["reduce", "bytes"]).ok(), b"30\n");
    visits(&["reduce", "count", "--prefix", "z"]).fails(1);
    visits(&["reduce", "median"]).fails(2);
    visits(&["reduce", "count", "--at", "1 hour ago"]).fails(2);
    shell.db(&["keyspaces", "create", "words", "--structure", "history"]).ok();
    let words = |args: &[&str]| shell.db(&[&["--keyspace", "words"], args].concat());
    words(&["put", "k", "m"]).ok();
    let history = words(&["history", "k"]).ok_text();
    let first = history.split('\t').next().unwrap();
    words(&["put", "k", "z"]).ok();
    words(&["put", "l", "a"]).ok();
    assert_eq!(words(&["reduce", "max"]).ok(), b"z\n");
    assert_eq!(words(&["reduce", "max", "--at", first]).ok(), b"m\n");
    assert!(words(&["reduce", "sum"]).fails(2).contains("a number has 8"));
}

#[test]
fn what_a_keyspace_does_not_keep_is_said_to_be_beyond_it() {
    let shell = Shell::new();
    let create = |args: &[&str]| shell.db(&[&["keyspaces", "create"], args].concat());
    create(&["last", "--structure", "history", "--keep-versions", "1"]).ok();
    create(&["week", "--structure", "history", "--keep-for", "7d"]).ok();
    let refused = create(&["no", "--structure", "lsm", "--keep-for", "7d"]).fails(2);
    assert!(refused.contains("structure lsm has no keep_for"), "{refused}");
    let list = shell.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    assert!(list.contains("\"keep_versions\":1"), "{list}");
    assert!(list.contains(&format!("\"keep_for_millis\":{}", 7 * 86_400_000)), "{list}");
    let last = |args: &[&str]| shell.db(&[&["--keyspace", "last"], args].concat());
    last(&["put", "figs", "1"]).ok();
    let history = last(&["history", "figs"]).ok_text();
    let first = history.split('\t').next().unwrap();
    assert_eq!(last(&["get", "figs", "--at", first]).ok(), b"1");
    for value in ["2", "3"] {
        last(&["put", "figs", value]).ok();
    }
    let refused = last(&["get", "figs", "--at", first]).fails(1);
    assert!(refused.contains("it keeps the last 1 versions of each key"), "{refused}");
    assert!(refused.contains("lithe history"), "{refused}");
    shell.db(&["compact"]).ok();
    assert_eq!(last(&["history", "figs"]).ok_text().lines().count(), 1);
    assert_eq!(last(&["get", "figs"]).ok(), b"3");
}

#[test]
fn a_keyspace_with_history_shows_its_past_and_brings_it_back() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "prices", "--structure", "history"]).ok();
    let prices = |arguments: &[&str]| shell.db(&[&["--keyspace", "prices"], arguments].concat());
    prices(&["put", "bread", "3.10"]).ok();
    prices(&["put", "figs", "7"]).ok();
    let stamps = prices(&["scan", "--stamps", "--keys-only"]).ok_text();
    let stamp = stamps.lines().last().and_then(|line| line.split('\t').nth(1)).unwrap().to_owned();
    prices(&["put", "bread", "3.40"]).ok();
    prices(&["delete", "figs"]).ok();
    prices(&["get", "figs"]).fails(1);
    assert_eq!(prices(&["get", "bread", "--at", &stamp]).ok(), b"3.10");
    assert_eq!(prices(&["scan", "--at", &stamp]).ok(), b"bread\t3.10\nfigs\t7\n");
    prices(&["get", "bread", "--at", "2 hours ago"]).fails(1);
    assert!(prices(&["get", "bread", "--at", "tomorrow"]).fails(2).contains("5 minutes ago"));

    let history = prices(&["history", "figs"]).ok_text();
    let told: Vec<Vec<&str>> = history.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((told.len(), told[0][2], told[1][2], told[1][3]), (2, "delete", "put", "7"));
    let oldest = prices(&["history", "figs", "--oldest-first", "--limit", "1"]).ok_text();
    assert_eq!(oldest.trim_end(), history.lines().last().unwrap());
    let json = prices(&["history", "figs", "--format", "jsonl", "--limit", "1"]).ok_text();
    assert!(json.contains("\"value\":null"), "{json}");
    prices(&["history", "plums"]).fails(1);

    assert!(prices(&["restore", "--at", &stamp]).fails(2).contains("--all"));
    prices(&["restore", "figs", "--at", &stamp]).ok();
    assert_eq!(prices(&["scan"]).ok(), b"bread\t3.40\nfigs\t7\n");
    prices(&["restore", "--all", "--yes", "--at", &stamp]).ok();
    assert_eq!(prices(&["scan"]).ok(), b"bread\t3.10\nfigs\t7\n");
    shell.db(&["put", "k", "v"]).ok();
    assert!(shell.db(&["get", "k", "--at", "0.0"]).fails(2).contains("keeps no versions"));
    let keyspaces = shell.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    assert_eq!(keyspaces.lines().count(), 2, "its archive is not among them: {keyspaces}");
    shell.db(&["check"]).ok();
    // What a dump says of it makes such a keyspace again.
    let dump = prices(&["dump"]).ok();
    let other = Shell::new();
    other.db_with_input(&["--keyspace", "prices", "load", "-"], &dump).ok();
    let again = other.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    assert!(again.contains("\"structure\":\"history\""), "{again}");
}

#[test]
fn a_consumer_gets_what_is_new_to_it_and_the_log_is_kept_meanwhile() {
    let shell = Shell::new();
    shell.db(&["put", "before", "1"]).ok();
    assert!(shell.db(&["changes", "--consumer", "mirror"]).fails(1).contains("mirror"));
    shell.db(&["consumers", "create", "mirror", "--log-max", "64MiB"]).ok();
    assert!(shell.db(&["consumers", "create", "mirror"]).fails(2).contains("mirror"));
    for none in ["0", "0MiB"] {
        let refused = shell.db(&["consumers", "create", "none", "--log-max", none]).fails(2);
        assert!(refused.contains("say a size"), "{refused}");
    }
    shell.db(&["put", "apple", r"red\"]).ok();
    shell.db(&["delete", "apple"]).ok();
    shell.db(&["delete", "--prefix", "a", "--yes"]).ok();
    let new = |options: &[&str]| {
        shell.db(&[&["changes", "--consumer", "mirror"], options].concat()).ok_text()
    };
    let shown = new(&["--limit", "2", "--acknowledge"]);
    let fields = |line: &str| line.split('\t').skip(2).collect::<Vec<_>>().join("|");
    let shown: Vec<String> = shown.lines().map(fields).collect();
    assert_eq!(shown, [r"default|put|apple|red\\", "default|delete|apple|"]);
    let rest = new(&["--format", "jsonl"]);
    let object: serde_json::Value = serde_json::from_str(&rest).unwrap();
    let expected = serde_json::json!({
        "keyspace": "default", "keyspace_id": 1, "kind": "delete_range", "start": "a", "end": "b",
    });
    assert_eq!(object["changes"], serde_json::json!([expected]), "{rest}");
    let list = shell.db(&["consumers", "--format", "jsonl"]).ok_text();
    let told: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&told["name"], &told["is_lost"]), (&"mirror".into(), &false.into()), "{list}");
    assert!(shell.db(&["consumers"]).ok_text().contains("mirror"));
    // All that the log has, behind a stamp, of a keyspace.
    let since = object["stamp"].as_str().unwrap();
    assert_eq!(shell.db(&["changes", "--since", since]).ok_text(), "");
    shell.db(&["changes", "--of", "nope", "--since", since]).fails(1);
    new(&["--acknowledge"]);
    assert_eq!(new(&[]), "");
    shell.db(&["consumers", "remove", "mirror", "--yes"]).ok();
    shell.db(&["consumers", "remove", "mirror", "--yes"]).fails(1);
    assert_eq!(shell.db(&["consumers", "--format", "jsonl"]).ok_text(), "");
}

#[test]
fn a_keyspace_is_converted() {
    let shell = Shell::new();
    let rows: Vec<u8> = (0..3000).flat_map(|n| format!("{n:05}\n").into_bytes()).collect();
    let load = ["--keyspace", "k", "load", "-q", "--value", "line-number", "-"];
    shell.db_with_input(&load, &rows).ok();
    let listed = || shell.db(&["keyspaces", "--format", "jsonl"]).ok_text();
    let told = shell.db(&["convert", "k", "--structure", "lsm", "--block-size", "8KiB"]);
    assert!(told.stderr.contains("3,000 entries copied"), "{told:?}");
    assert!(listed().contains("\"structure\":\"lsm\"") && listed().contains("\"block_size\":8192"));
    // What is not said stays.
    shell.db(&["convert", "k", "--structure", "lsm", "--codec", "lz4"]).ok();
    assert!(listed().contains("\"block_size\":8192") && listed().contains("\"codec\":\"lz4\""));
    let told = shell.db(&["convert", "k", "--structure", "history", "--keep-versions", "3"]);
    assert!(told.stderr.contains("its past begins with "), "{told:?}");
    let keep = ["convert", "k", "--structure", "history", "--keep-versions", "4"];
    assert!(shell.db(&keep).fails(2).contains("which a conversion cannot change"));
    shell.db(&["--keyspace", "k", "put", "00001", "changed"]).ok();
    let refused = shell.db(&["convert", "k", "--structure", "flex"]);
    assert!(refused.stderr.contains("add --yes"), "{refused:?}");
    refused.fails(2);
    shell.db(&["convert", "k", "--structure", "flex", "--yes"]).ok();
    assert!(listed().contains("\"structure\":\"flex\""));
    assert_eq!(shell.db(&["--keyspace", "k", "count"]).ok(), b"3000\n");
    assert_eq!(shell.db(&["--keyspace", "k", "get", "00001"]).ok(), b"changed");
    shell.db(&["convert", "k", "--structure", "lsm", "--merge", "append"]).fails(2);
    shell.db(&["convert", "nobody", "--structure", "lsm"]).fails(1);
    shell.db(&["convert", "k"]).fails(2);
    shell.db(&["check"]).ok();
}
