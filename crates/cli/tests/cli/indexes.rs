//! Secondary indexes: created, listed, scanned, rebuilt and dropped.

use crate::shell::Shell;

#[test]
fn entries_are_found_by_a_field_of_their_values() {
    let shell = Shell::new();
    for (key, value) in [("17", "Ada,London"), ("18", "Carl,Brunswick"), ("19", "Mary,London")] {
        shell.db(&["put", key, value]).ok();
    }
    let create = ["index", "create", "by_city", "--extractor", "field:,:2"];
    shell.db(&create).ok();
    assert!(shell.db(&create).fails(2).contains("by_city"));
    let scan = |more: &[&str]| shell.db(&[&["index", "scan", "by_city"], more].concat()).ok_text();
    assert_eq!(scan(&[]), "Brunswick\t18\nLondon\t17\nLondon\t19\n");
    assert_eq!(scan(&["--reverse", "--limit", "1"]), "London\t19\n");
    assert_eq!(scan(&["--prefix", "B"]), "Brunswick\t18\n");
    assert_eq!(scan(&["--from", "C", "--to", "M", "--limit", "1"]), "London\t17\n");
    assert_eq!(scan(&["--from", "M", "--to", "C"]), "");
    assert_eq!(
        scan(&["--key", "London", "--values"]),
        "London\t17\tAda,London\nLondon\t19\tMary,London\n"
    );
    let json = scan(&["--key", "Brunswick", "--values", "--format", "jsonl"]);
    assert_eq!(json, "{\"index_key\":\"Brunswick\",\"key\":\"18\",\"value\":\"Carl,Brunswick\"}\n");
    assert_eq!(scan(&["--key", "Brunswick", "--format", "hex"]), "4272756e737769636b\t3138\n");
    shell.db(&["put", "18", "Carl,London"]).ok();
    shell.db(&["delete", "--from", "19", "--yes"]).ok();
    assert_eq!(scan(&[]), "London\t17\nLondon\t18\n");
    assert!(shell.db(&["check"]).ok_text().starts_with("ok"));
}

#[test]
fn indexes_are_listed_rebuilt_and_dropped() {
    let shell = Shell::new();
    shell.db(&["put", "a", "x"]).ok();
    shell.db(&["index", "create", "by_value", "--extractor", "value", "--unique"]).ok();
    let list = shell.db(&["indexes", "default", "--format", "jsonl"]).ok_text();
    assert!(list.contains("\"unique\":true") && list.contains("\"entries\":1"), "{list}");
    assert!(list.contains("\"ready\":true"), "{list}");
    let table = shell.db(&["indexes"]).ok_text();
    assert!(table.contains("by_value") && table.contains("ready"), "{table}");
    assert!(shell.db(&["put", "b", "x"]).fails(2).contains("by_value"));
    shell.db(&["get", "b"]).fails(1);
    shell.db(&["index", "rebuild", "by_value"]).ok();
    shell.db(&["index", "build", "by_value"]).ok();
    assert_eq!(shell.db(&["index", "scan", "by_value"]).ok_text(), "x\ta\n");
    for name in ["nope", "value_prefix:0", "field:,"] {
        let refused = shell.db(&["index", "create", "other", "--extractor", name]).fails(2);
        assert!(refused.contains(&format!("there is no extractor {name:?}: ")), "{refused}");
        assert!(refused.contains("`value_prefix:N`") && !refused.contains("made"), "{refused}");
    }
    shell.db(&["index", "drop", "by_value"]).ok();
    shell.db(&["index", "drop", "by_value"]).fails(1);
    shell.db(&["index", "scan", "by_value"]).fails(1);
    shell.db(&["put", "b", "x"]).ok();
    assert_eq!(shell.db(&["indexes", "--format", "jsonl"]).ok_text(), "");
}

#[test]
fn help_shows_examples() {
    let shell = Shell::new();
    for command in [&["index", "--help"][..], &["indexes", "--help"]] {
        let help = shell.run(command).ok_text();
        assert!(help.contains("Examples:") && help.contains("lithe --db my.lithe"), "{help}");
    }
}
