//! The past of keys: what is said of it, and bringing it back.

use crate::shell::{Run, Shell};

/// A database with keyspace `prices`, which keeps versions as the options say.
struct Prices(Shell);

impl Prices {
    fn new(options: &[&str]) -> Prices {
        let shell = Shell::new();
        let create = ["keyspaces", "create", "prices", "--structure", "history"];
        shell.db(&[&create[..], options].concat()).ok();
        Prices(shell)
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.0.db(&[&["--keyspace", "prices"], arguments].concat())
    }

    /// The fields of what `history` prints of a key.
    fn history(&self, key: &str) -> Vec<Vec<String>> {
        let text = self.run(&["history", key]).ok_text();
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }
}

#[test]
fn times_that_are_printed_can_be_asked_for() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "3.10"]).ok();
    let shown = prices.history("bread")[0][1].clone();
    std::thread::sleep(std::time::Duration::from_millis(2));
    prices.run(&["put", "bread", "3.40"]).ok();
    let json = prices.run(&["history", "bread", "--oldest-first", "--format", "jsonl"]).ok_text();
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let time = first["time"].as_str().unwrap();
    assert_eq!(time, shown.replace(' ', "T") + "Z");
    let view = prices.run(&["view", "--stamps"]).ok_text();
    let written = view.lines().last().unwrap().rsplit("  ").next().unwrap();
    for (at, value) in [
        (&shown[..], "3.10"),
        (&format!("{shown}Z"), "3.10"),
        (time, "3.10"),
        (written.trim(), "3.40"),
    ] {
        assert_eq!(prices.run(&["get", "bread", "--at", at]).ok_text(), value, "{at}");
    }
    let refused = prices.run(&["get", "bread", "--at", "1969-01-01T00:00:00Z"]).fails(2);
    assert!(refused.contains("1969-01-01T00:00:00Z is before 1970"), "{refused}");
}

#[test]
fn milliseconds_alone_are_not_taken_for_a_stamp() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "3.10"]).ok();
    let stamp = prices.history("bread")[0][0].clone();
    let (millis, counter) = stamp.split_once('.').unwrap();
    for arguments in [
        &["get", "bread", "--at", millis][..],
        &["history", "bread", "--from", millis],
        &["restore", "--all", "--at", millis],
        &["commits", "--from", millis],
    ] {
        let refused = prices.run(arguments).fails(2);
        assert!(refused.contains(&format!("write {millis}.0 for that of 2")), "{refused}");
    }
    let number = millis.parse::<u64>().unwrap() << 16 | counter.parse::<u64>().unwrap();
    let got = prices.run(&["get", "bread", "--at", &number.to_string()]);
    assert_eq!(got.ok_text(), "3.10");
}

#[test]
fn what_is_not_kept_is_not_said_never_to_have_happened() {
    let last = Prices::new(&["--keep-versions", "2"]);
    for value in ["1", "2", "3", "4"] {
        last.run(&["put", "bread", value]).ok();
    }
    let kept = last.history("bread");
    assert_eq!(kept.len(), 2, "{kept:?}");
    let oldest = &kept[1][0];
    let (millis, _) = oldest.split_once('.').unwrap();
    let before = format!("{}.0", millis.parse::<u64>().unwrap() - 1);
    let gone = last.run(&["history", "bread", "--to", &before]).fails(1);
    assert!(gone.contains("it keeps the last 2 versions of each key"), "{gone}");
    assert!(gone.contains("nothing of \"bread\" in that time"), "{gone}");
    let none = last.run(&["history", "figs"]).fails(1);
    assert!(none.contains("nothing happened to \"figs\" in \"prices\"\n"), "{none}");

    let brief = Prices::new(&["--keep-for", "1ms"]);
    brief.run(&["put", "bread", "1"]).ok();
    brief.run(&["delete", "bread"]).ok();
    std::thread::sleep(std::time::Duration::from_millis(5));
    // What is kept begins with the newest commit at the latest.
    brief.run(&["put", "figs", "1"]).ok();
    for arguments in [&["history", "bread"][..], &["history", "bread", "--to", "1 hour ago"]] {
        let gone = brief.run(arguments).fails(1);
        assert!(gone.contains("it keeps what there was from "), "{gone}");
    }

    let all = Prices::new(&[]);
    all.run(&["put", "bread", "1"]).ok();
    let none = all.run(&["history", "bread", "--to", "1 hour ago"]).fails(1);
    assert!(none.contains("nothing happened to \"bread\" in \"prices\" in that time"), "{none}");
    let wrong = ["history", "bread", "--from", "1 hour ago", "--to", "2 hours ago"];
    assert!(all.run(&wrong).fails(2).contains("--from is later than --to"));
    assert_eq!(all.run(&["history", "bread", "--limit", "0"]).ok_text(), "");
    assert_eq!(all.run(&["history", "figs", "--limit", "0"]).ok_text(), "");
    let stamp = &all.history("bread")[0][0];
    let one = all.run(&["history", "bread", "--from", stamp, "--to", stamp]).ok_text();
    assert_eq!(one.lines().count(), 1);
}

#[test]
fn history_says_when_a_value_expires() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "1"]).ok();
    prices.run(&["put", "bread", "2", "--expires", "2999-01-01T00:00:00Z"]).ok();
    let told = prices.history("bread");
    assert_eq!(told[0][2..], ["put", "2", "expires 2999-01-01T00:00:00.000Z"]);
    assert_eq!(told[1][2..], ["put", "1"]);
    let json = prices.run(&["history", "bread", "--format", "jsonl"]).ok_text();
    let expires: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["expires"].clone())
        .collect();
    assert_eq!(expires, [serde_json::json!("2999-01-01T00:00:00.000Z"), serde_json::json!(null)]);
}

#[test]
fn restoring_no_key_at_all_is_an_error() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "1"]).ok();
    let stamp = prices.history("bread")[0][0].clone();
    let backwards = ["restore", "--from", "z", "--to", "a", "--at", &stamp, "--yes"];
    assert!(prices.run(&backwards).fails(2).contains("no key is in this range"));
    prices.0.db(&[&["--keyspace", "nobody"], &backwards[..]].concat()).fails(2);
    prices.0.db(&["--keyspace", "nobody", "restore", "bread", "--at", &stamp]).fails(1);
    prices.0.run(&["--db", "none", "restore", "bread", "--at", &stamp]).fails(3);
    assert!(!prices.0.path("none").exists());
}

#[test]
fn restoring_a_range_needs_a_yes_and_a_key_does_not() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "1"]).ok();
    let stamp = prices.history("bread")[0][0].clone();
    prices.run(&["put", "bread", "2"]).ok();
    prices.run(&["put", "figs", "2"]).ok();
    for range in [&["--all"][..], &["--prefix", "b"], &["--from", "a", "--to", "z"]] {
        let restore = [&["restore", "--at", &stamp], range].concat();
        let refused = prices.run(&restore).fails(2);
        assert!(refused.contains("keyspace \"prices\": add --yes"), "{refused}");
    }
    assert_eq!(prices.run(&["scan"]).ok_text(), "bread\t2\nfigs\t2\n");
    prices.run(&["restore", "bread", "--at", &stamp]).ok();
    assert_eq!(prices.run(&["scan"]).ok_text(), "bread\t1\nfigs\t2\n");
    prices.run(&["restore", "--from", "a", "--at", &stamp, "--yes"]).ok();
    assert_eq!(prices.run(&["scan"]).ok_text(), "bread\t1\n");
}

#[test]
fn a_time_in_the_future_is_told_as_it_was_asked_for() {
    let prices = Prices::new(&[]);
    let refused = prices.run(&["get", "bread", "--at", "2999-01-01T00:00:00Z"]).fails(2);
    assert!(refused.contains("2999-01-01T00:00:00.000Z is in the future: it is 2"), "{refused}");
    assert!(refused.contains("Z\n"), "{refused}");
}

#[test]
fn what_was_not_there_is_said_not_to_have_been_there_then() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "1"]).ok();
    let missing = prices.run(&["get", "bread", "--at", "1999-01-01T00:00:00Z"]).fails(1);
    let said = "\"bread\" was not in keyspace \"prices\" as of 1999-01-01T00:00:00.000Z\n";
    assert!(missing.contains(said), "{missing}");
    let missing = prices.run(&["get", "bread", "--at", "1000000000000.3"]).fails(1);
    assert!(missing.contains("as of 1000000000000.3, 2001-09-09T01:46:40.000Z\n"), "{missing}");
    let missing = prices.run(&["get", "figs"]).fails(1);
    assert!(missing.contains("\"figs\" is not in keyspace \"prices\"\n"), "{missing}");
}

#[test]
fn who_asked_for_reading_alone_is_not_sent_to_the_disk() {
    let prices = Prices::new(&[]);
    prices.run(&["put", "bread", "1"]).ok();
    let stamp = prices.history("bread")[0][0].clone();
    prices.run(&["put", "bread", "2"]).ok();
    for arguments in [
        &["--read-only", "restore", "bread", "--at", &stamp][..],
        &["--read-only", "put", "bread", "3"],
    ] {
        let refused = prices.run(arguments).fails(3);
        assert!(refused.contains("leave --read-only out"), "{refused}");
        assert!(!refused.contains("disk"), "{refused}");
    }
}
