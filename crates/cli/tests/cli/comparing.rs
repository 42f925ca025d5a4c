//! Order statistics, compaction and differences between databases.

use crate::shell::Shell;

fn shell_with_two_databases() -> Shell {
    let shell = Shell::new();
    let rows = |from: u32, tag: &str| -> String {
        (from..from + 50).map(|number| format!("k{number:02}\t{tag} {number}\n")).collect()
    };
    let load = ["load", "-q", "--format", "tsv", "--no-header", "--value", "2", "-"];
    shell.db_with_input(&load, rows(0, "value").as_bytes()).ok();
    shell.write("other.tsv", rows(2, "value").as_bytes());
    let other = ["--db", "other", "load", "-q", "--format", "tsv", "--no-header", "--value", "2"];
    shell.run(&[&other[..], &["other.tsv"]].concat()).ok();
    shell.run(&["--db", "other", "put", "k07", "changed\n"]).ok();
    shell
}

#[test]
fn a_rank_and_back() {
    let shell = shell_with_two_databases();
    assert_eq!(shell.db(&["rank", "k00"]).ok_text(), "0\n");
    assert_eq!(shell.db(&["rank", "k17"]).ok_text(), "17\n");
    assert_eq!(shell.db(&["rank", "k171"]).ok_text(), "18\n", "it need not be there");
    assert_eq!(shell.db(&["rank", "--key-format", "hex", "ff"]).ok_text(), "50\n");
    assert_eq!(shell.db(&["select", "17"]).ok_text(), "k17\tvalue 17\n");
    assert_eq!(shell.db(&["select", "17", "--keys-only"]).ok_text(), "k17\n");
    assert!(shell.db(&["select", "50"]).fails(1).contains("50"));
}

#[test]
fn differences_of_two_databases() {
    let shell = shell_with_two_databases();
    let diff = |arguments: &[&str]| shell.db(&[&["diff", "other", "-q"], arguments].concat());
    let all = diff(&[]);
    let expected = "-\tk00\tvalue 0\n-\tk01\tvalue 1\n-\tk07\tvalue 7\n+\tk07\tchanged\\x0a\n\
                    +\tk50\tvalue 50\n+\tk51\tvalue 51\n";
    assert_eq!((all.code, all.text()), (1, expected));
    assert!(all.stderr.contains("5 keys"), "{}", all.stderr);
    let first = diff(&["--first"]);
    assert_eq!((first.code, first.text()), (1, "-\tk00\tvalue 0\n"));
    let changed = diff(&["--from", "k05", "--to", "k10", "--format", "jsonl"]);
    let line = "{\"key\":\"k07\",\"left\":\"value 7\",\"right\":\"changed\\n\"}\n";
    assert_eq!((changed.code, changed.text()), (1, line));
    assert_eq!(diff(&["--keys-only", "--prefix", "k0", "--from", "k02"]).ok_text(), "");
    assert_eq!(diff(&["--prefix", "k2"]).ok_text(), "");
}

#[test]
fn a_dump_that_is_loaded_again_does_not_differ() {
    let shell = shell_with_two_databases();
    shell.run(&["--db", "other", "put", "--key-format", "hex", "ff00", "\u{e4}"]).ok();
    let lithe = env!("CARGO_BIN_EXE_lithe");
    let load = "load -q --format ndjson --value value -";
    let line = format!("{lithe} --db other scan --format jsonl | {lithe} --db copy {load}");
    let copied = shell.shell_command(&line).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(shell.run(&["--db", "other", "diff", "copy"]).ok_text(), "");
}

#[test]
fn an_expiry_that_was_lost_is_a_difference() {
    let shell = Shell::new();
    let expires = ["--expires", "2099-01-01T00:00:00Z"];
    for database in ["db", "other"] {
        let put = |key| ["--db", database, "put", key, "x"];
        shell.run(&[&put("both")[..], &expires].concat()).ok();
        shell.run(&put("none")).ok();
        match database {
            "db" => shell.run(&[&put("one")[..], &expires].concat()).ok(),
            _ => shell.run(&put("one")).ok(),
        };
    }
    let diff = |arguments: &[&str]| shell.db(&[&["diff", "other", "-q"], arguments].concat());
    let text = diff(&[]);
    let expected = "-\tone\tx\t2099-01-01T00:00:00.000Z\n+\tone\tx\t-\n";
    assert_eq!((text.code, text.text()), (1, expected));
    let json = diff(&["--format", "jsonl"]);
    let expected = "{\"key\":\"one\",\"left\":\"x\",\"left_expires\":\"2099-01-01T00:00:00.000Z\",\
                    \"right\":\"x\",\"right_expires\":null}\n";
    assert_eq!((json.code, json.text()), (1, expected));
    assert_eq!(diff(&["--no-expiry"]).ok_text(), "");
    assert_eq!(diff(&["--keys-only"]).ok_text(), "");
}

#[test]
fn a_database_is_not_compared_with_none_and_equals_itself() {
    let shell = shell_with_two_databases();
    assert!(shell.db(&["diff", "nowhere"]).fails(3).contains("nowhere"));
    assert_eq!(shell.db(&["diff", "db"]).ok_text(), "");
}

#[test]
fn compaction_gives_back_what_was_deleted() {
    let shell = shell_with_two_databases();
    shell.db(&["delete", "--prefix", "k", "--yes"]).ok();
    assert!(shell.db(&["compact", "--rate", "0"]).fails(2).contains("rate"));
    let paced = shell.db(&["compact", "--rate", "1MiB"]);
    assert!(paced.code == 0 && paced.stderr.ends_with(" written\n"), "{paced:?}");
    assert_eq!(shell.db(&["count"]).ok_text(), "0\n");
    shell.db(&["compact"]).ok();
    shell.db(&["check"]).ok();
}
