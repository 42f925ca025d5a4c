//! What is said when something is not as it should be: exactly, and of the right thing.

use crate::shell::{Run, Shell};

/// A line for `sh`, in which `$LITHE` is the program.
fn line(shell: &Shell, line: &str) -> Run {
    let program = format!("LITHE='{}'; {line}", env!("CARGO_BIN_EXE_lithe"));
    Run::of(shell.shell_command(&program).output().unwrap())
}

#[test]
fn failures_name_what_they_are_about() {
    let shell = Shell::new();
    let token = ["token", "create", "--tokens", "tok", "--name", "app", "--grant", "*:read"];
    shell.run(&token).ok();
    shell.db(&["put", "a", "1"]).ok();
    for (arguments, code, said) in [
        (
            &["token", "remove", "--tokens", "tok", "nope"][..],
            1,
            "there is no token of the name or id \"nope\" in tok",
        ),
        (&["--db", "db", "rekey", "--data"], 2, "the database is not encrypted, so that"),
        (&["--db", "db", "--keyspace", "a", "serve"], 2, "a server serves all keyspaces"),
        (&["health", "--url", "http://127.0.0.1:1"], 3, "http://127.0.0.1:1: Connection refused"),
    ] {
        let stderr = shell.run(arguments).fails(code);
        assert!(stderr.contains(said), "{stderr}");
    }
    let run = shell.run(&["db", "-c", ".mode json", "-c", "get"]);
    assert!(run.stderr.contains("Usage: get <KEY>") && run.code == 2, "{run:?}");
}

#[test]
fn a_dump_of_nothing_says_so() {
    let shell = Shell::new();
    shell.db(&["create"]).ok();
    shell.db(&["keyspaces", "drop", "default", "--yes"]).ok();
    let run = shell.db(&["dump", "--all"]);
    assert_eq!((run.code, run.stderr.trim()), (0, "no pairs: there is no keyspace"));
}

#[test]
fn answers_that_cannot_be_written_are_failures() {
    let shell = Shell::new();
    for answer in ["--version", "--help", "get --help", "version"] {
        let stderr = line(&shell, &format!("$LITHE {answer} > /dev/full")).fails(3);
        assert!(stderr.contains("could not write standard output"), "{stderr}");
        line(&shell, &format!("$LITHE {answer}")).ok();
    }
}

#[test]
fn help_that_nobody_can_read_is_still_wrong_usage() {
    let shell = Shell::new();
    assert_eq!(line(&shell, "$LITHE 2> /dev/full").code, 2);
    let run = line(&shell, "$LITHE");
    assert!(run.code == 2 && run.stderr.contains("neither a command nor a database"), "{run:?}");
}

#[test]
fn a_file_that_would_be_too_large_is_an_error_and_no_signal() {
    let shell = Shell::new();
    let stderr = line(&shell, "ulimit -f 100; $LITHE --db db put a b").fails(3);
    assert!(stderr.contains("File too large") && stderr.contains("ulimit -f"), "{stderr}");
}
