//! The shell, given its commands by options, files and pipes.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::shell::{Run, Shell};

fn with_data() -> Shell {
    let shell = Shell::new();
    shell.db(&["put", "a", "1"]).ok();
    shell.db(&["put", "b", "2"]).ok();
    shell
}

fn piped(shell: &Shell, text: &str) -> Run {
    shell.db_with_input(&[], text.as_bytes())
}

#[test]
fn commands_come_from_options_files_and_pipes() {
    let shell = with_data();
    assert_eq!(shell.run(&["db", "-c", "get a", "-c", "get b\nget a"]).ok_text(), "1\n2\n1\n");
    assert_eq!(shell.run(&["--db", "db", "-c", "count; count"]).ok_text(), "2\n2\n");
    shell.write("commands", b"# a comment\nput c 3\n\n  count\nget c --format hex");
    assert_eq!(shell.run(&["db", "-f", "commands"]).ok_text(), "3\n33\n");
    assert_eq!(piped(&shell, "get a\nscan --prefix b\n").ok_text(), "1\nb\t2\n");
    assert_eq!(shell.db_with_input(&["-f", "-"], b"count").ok_text(), "3\n");
    assert_eq!(piped(&shell, "").ok_text(), "");
    assert_eq!(piped(&shell, "count\n.quit\nfrobnicate\n").ok_text(), "3\n");
    shell.run(&["db", "-c", "x", "-f", "commands"]).fails(2);
    shell.run(&["db", "get", "a"]).fails(2);
}

#[test]
fn a_database_that_is_not_there_is_never_made() {
    let shell = Shell::new();
    for (arguments, said) in [
        (&["nope"][..], "neither a command nor a database"),
        (&["scna"], "is it `scan`?"),
        (&["scna", "--prefix", "a"], "is it `scan`?"),
        (&["--db", "nope"], "there is no database in nope"),
        (&["nope", "-c", "put a 1"], "neither a command nor a database"),
        (&["--db", "db", "bogus"], "bogus is neither a command nor a database\n"),
        (&["--db", "db", "gte"], "gte is neither a command nor a database; is it `get`?"),
        (&["--db", "db", "gte", "a"], "gte is neither a command nor a database; is it `get`?"),
        (&["-q", "-d", "db", "--keyspace=x", "gte", "a"], "gte is neither a command nor"),
    ] {
        let stderr = shell.run(arguments).fails(2);
        assert!(stderr.contains(said), "{stderr}");
    }
    assert!(!shell.path("nope").exists());
    let run = shell.run(&[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("Usage:") && run.stderr.contains("error:"), "{run:?}");
    shell.db(&["create"]).ok();
    let text = ".open --create new\nput a 1\nget a\n.open --create new\nget a\n";
    let run = shell.run(&["db", "-c", text]);
    assert_eq!((run.code, run.text()), (2, "1\n"));
    assert!(run.stderr.contains("there is a database in new already"), "{run:?}");
    // What comes behind it is not done to what was open before.
    for (failing, code) in [(".open nope", 2), (".use nope", 1), (".read nope", 3)] {
        let run = shell.run(&["new", "-c", failing, "-c", "delete --all --yes"]);
        assert_eq!((run.code, run.text()), (code, ""), "{run:?}");
        assert_eq!(shell.run(&["--db", "new", "get", "a"]).ok(), b"1");
    }
    assert!(!shell.path("nope").exists());
}

#[test]
fn the_exit_code_is_that_of_the_last_failure_or_of_the_first_with_bail() {
    let shell = with_data();
    let text = "frobnicate\nget nobody\nget a\n";
    let run = piped(&shell, text);
    assert_eq!((run.code, run.text()), (1, "1\n"));
    assert!(run.stderr.contains("line 1: "), "{run:?}");
    assert!(run.stderr.contains("error: line 2: \"nobody\" is not in keyspace"), "{run:?}");
    let run = shell.db_with_input(&["--bail"], text.as_bytes());
    assert_eq!((run.code, run.text()), (2, ""));
    let run = piped(&shell, ".bail on\nget nobody\nget a\n");
    assert_eq!((run.code, run.text()), (1, ""));
    shell.write("failing", b"get nobody\nget a\n");
    assert_eq!(piped(&shell, ".read failing\nget b\n").text(), "1\n2\n");
    assert_eq!(piped(&shell, ".bail on\n.read failing\nget b\n").text(), "");
    assert_eq!(piped(&shell, ".read failing\n").code, 1);
}

#[test]
fn words_are_quoted_and_commands_go_over_lines() {
    let shell = with_data();
    let text = "put 'two words' \"line 1\nline\\t2\"\nput \\\n  x\\x00y \\\n ''\nscan --from t\n";
    assert_eq!(piped(&shell, text).ok_text(), "two words\tline 1\\x0aline\\x092\nx\\x00y\t\n");
    let run = piped(&shell, "get \\q\nget a\nput k 'open\n");
    assert_eq!((run.code, run.text()), (2, "1\n"));
    assert!(run.stderr.contains("line 1: unknown escape"), "{run:?}");
    assert!(run.stderr.contains("line 3: the text ends within this command"), "{run:?}");
    shell.db(&["get", "k"]).fails(1);
}

#[test]
fn a_transaction_sees_what_it_has_written_and_is_done_as_a_whole() {
    let shell = with_data();
    let text = "begin\nput a 10\ndelete b\nput c 3 --ttl 1h\nget a\nscan\ncount --from b\n\
                rollback\nscan\n";
    assert_eq!(piped(&shell, text).ok_text(), "10\na\t10\nc\t3\n1\na\t1\nb\t2\n");
    let text = "begin\nput a 10\nexpect a 10\nexpect-absent z\npayload why\ncommit\nget a\n\
                commits --format jsonl\n";
    let text = piped(&shell, text).ok_text();
    assert!(text.starts_with("10\n{"), "{text}");
    assert!(text.contains("\"payload\":\"why\""), "{text}");
    let text = "begin\nput a 11\nexpect a 12\nput z 1\ncommit\nget a\nget z\n";
    let run = piped(&shell, text);
    assert_eq!((run.code, run.text()), (1, "10\n"));
    assert!(run.stderr.contains("the transaction is undone"), "{run:?}");
    let run = piped(&shell, "begin\nget nobody\nput a 12\ncommit\n");
    assert_eq!(run.code, 1);
    assert_eq!(shell.db(&["get", "a"]).ok_text(), "12");
}

#[test]
fn what_has_failed_in_part_or_has_no_end_is_undone() {
    let shell = with_data();
    for (text, said) in [
        ("begin\nput a 10\nfrobnicate\ncommit\n", "a command of this transaction has failed"),
        ("begin\nput a 10\n", "the transaction was not committed: it is undone"),
        ("begin\nput a 10\nload words.txt\ncommit\n", "in a transaction there are get, scan"),
        ("batch\nput a 10\nget a\nend\n", "in a batch there are put, merge, delete"),
        ("batch\nput a 10\n", "the batch was not committed"),
        ("begin\nput a 10\nbegin\ncommit\n", "was begun already"),
        ("begin\nput a 10\nend\ncommit\n", "`commit` ends a transaction"),
        ("begin\nput a 10\ndelete --all\ncommit\n", "add --yes"),
        ("commit\n", "`begin` or `batch` begins one"),
        ("expect a 1\n", "`begin` begins one"),
    ] {
        let run = piped(&shell, text);
        assert_eq!(run.code, 2, "{text}: {run:?}");
        assert!(run.stderr.contains(said), "{text}: {run:?}");
        assert_eq!(shell.db(&["get", "a"]).ok_text(), "1", "{text}");
    }
}

#[test]
fn a_transaction_may_write_to_keyspaces_that_are_not_there_yet() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "other"]).ok();
    let text = "begin\nput a 1\nget a\nput --keyspace new c 1\ncount\nget --keyspace new c\n\
                delete a\nput --keyspace third c 2 --ttl 1h\nput b 2\ncommit\n\
                scan\nscan --keyspace new\nscan --keyspace third\n";
    let run = piped(&shell, text);
    assert!(run.stderr.contains("made the keyspace \"new\", which a rollback leaves"), "{run:?}");
    assert_eq!(run.ok_text(), "1\n1\n1\nb\t2\nc\t1\nc\t2\n");
    let run = piped(&shell, "begin\nput --keyspace fourth c 1\nrollback\n");
    assert!(run.stderr.contains("made the keyspace \"fourth\""), "{run:?}");
    assert_eq!(shell.db(&["--keyspace", "fourth", "count"]).ok_text(), "0\n");
    let run = piped(&shell, "batch\nput --keyspace fifth c 1\nend\n");
    assert!(run.stderr.contains("made the keyspace \"fifth\""), "{run:?}");
    run.ok();
}

#[test]
fn a_database_that_was_just_made_is_empty_and_can_be_read() {
    let shell = Shell::new();
    shell.db(&["create"]).ok();
    let first = piped(&shell, "begin\nput a 1\ncommit\n.use default\n");
    assert_eq!(first.stderr.lines().count(), 1, "{first:?}");
    first.ok();
    shell.run(&["--db", "second", "--keyspace", "users", "create"]).ok();
    for extra in [&[][..], &["--read-only"], &["--beside"], &["--keyspace", "users"]] {
        let run = |command: &[&str]| shell.run(&[&["--db", "second"], extra, command].concat());
        assert_eq!(run(&["scan"]).ok_text(), "");
        assert_eq!(run(&["count"]).ok_text(), "0\n");
        assert!(run(&["get", "a"]).fails(1).contains("\"a\" is not in keyspace"));
    }
    shell.run(&["db", "-c", ".open --create third\ncount\n"]).ok();
    // Nobody has chosen the options of a keyspace that is there by itself.
    let options = ["--db", "old", "keyspaces", "create", "default", "--structure", "lsm"];
    shell.run(&options).ok();
    shell.run(&["--db", "old", "put", "a", "1"]).ok();
    shell.write("dump", &shell.run(&["--db", "old", "dump"]).ok());
    shell.run(&["--db", "third", "load", "dump"]).ok();
    assert!(shell.run(&["--db", "third", "keyspaces"]).ok_text().contains("lsm"));
    let again = shell.db(&["load", "dump"]);
    assert!(again.stderr.contains("keeps the options that it has"), "{again:?}");
}

#[test]
fn what_writes_nothing_is_no_commit() {
    let shell = with_data();
    for text in ["begin\nget a\ncommit\n", "begin\ncommit\n", "batch\nend\n"] {
        let run = piped(&shell, text);
        assert_eq!((run.code, run.stderr.trim()), (0, "nothing was written: there is no commit"));
    }
}

#[test]
fn a_batch_is_written_at_its_end() {
    let shell = with_data();
    shell.db(&["keyspaces", "create", "visits", "--merge", "counter"]).ok();
    let text = "batch\nput a 10\nput b 20\ndelete --prefix b --yes\n.use visits\n\
                merge home --add 3\npayload together\nend\nget home --format hex\n\
                get --keyspace default a\n";
    assert_eq!(piped(&shell, text).ok_text(), "0300000000000000\n10\n");
    assert_eq!(shell.db(&["scan"]).ok_text(), "a\t10\n");
    assert_eq!(piped(&shell, "batch\nput a 11\nrollback\nget a\n").ok_text(), "10\n");
}

#[test]
fn the_session_has_a_keyspace_a_mode_and_an_output() {
    let shell = with_data();
    let text = "keyspaces create users\nuse users\n.use\nput ada 1\nscan\n\
                get --keyspace default a\n.use nobody\nscan\n";
    let run = piped(&shell, text);
    assert_eq!((run.code, run.text()), (1, "users\nada\t1\n1\n"));
    let text = ".mode csv\nscan\n.mode json\ncount\n.mode\n.mode plain\nscan --limit 1\n";
    let expected = "key,value\na,1\nb,2\n{\"count\":2}\njson\na\t1\n";
    assert_eq!(piped(&shell, text).ok_text(), expected);
    piped(&shell, ".mode xml\n").fails(2);
    assert_eq!(piped(&shell, ".output rows\nscan\n.output\ncount\n").ok_text(), "2\n");
    assert_eq!(std::fs::read_to_string(shell.path("rows")).unwrap(), "a\t1\nb\t2\n");
    assert_eq!(piped(&shell, ".keyspaces\n").ok_text().lines().count(), 3);
    let run = piped(&shell, ".timer on\nget a\n");
    assert_eq!(run.text(), "1\n");
    assert!(run.stderr.contains("time: "), "{run:?}");
}

#[test]
fn a_file_of_output_is_for_its_owner_and_made_at_the_end_of_no_link() {
    let shell = with_data();
    let mode =
        |name: &str| std::fs::metadata(shell.path(name)).unwrap().permissions().mode() & 0o777;
    let program = env!("CARGO_BIN_EXE_lithe");
    let line = format!("umask 0; printf '.output rows\\nscan\\n' | {program} db");
    assert!(shell.shell_command(&line).output().unwrap().status.success());
    assert_eq!(mode("rows"), 0o600);
    std::fs::set_permissions(shell.path("rows"), Permissions::from_mode(0o644)).unwrap();
    piped(&shell, ".output rows\ncount\n").ok();
    assert_eq!(std::fs::read_to_string(shell.path("rows")).unwrap(), "2\n");
    assert_eq!(mode("rows"), 0o644);
    symlink(shell.path("elsewhere"), shell.path("link")).unwrap();
    assert!(piped(&shell, ".output link\nscan\n").stderr.contains("could not write link"));
    assert!(!shell.path("elsewhere").exists());
}

#[test]
fn commands_that_make_no_sense_inside_say_so() {
    let shell = with_data();
    for name in ["create", "demo", "bench", "torture kill", "completions bash", "serve"] {
        let stderr = piped(&shell, &format!("{name}\n")).fails(2);
        assert!(stderr.contains("is not for the shell"), "{stderr}");
    }
    piped(&shell, "commits --keep 1MiB\n").fails(2);
    piped(&shell, ".history\n").fails(2);
    piped(&shell, ".nope\n").fails(2);
    for text in ["get\n", "get a --db other\n", "get a --read-only\n"] {
        piped(&shell, text).fails(2);
    }
}

#[test]
fn help_is_that_of_the_program_without_what_is_for_opening() {
    let shell = with_data();
    let list = piped(&shell, "help\n").ok_text();
    for shown in ["  scan ", "  begin ", "  .mode [FORMAT] "] {
        assert!(list.contains(shown), "{shown} is not in {list}");
    }
    assert!(!list.contains("  demo ") && !list.contains("  bench"), "{list}");
    for text in ["help get\n", ".help get\n", "get --help\n"] {
        let help = piped(&shell, text).ok_text();
        assert!(help.contains("\n  get greeting\n"), "{help}");
        assert!(!help.contains("--db") && !help.contains("--key-file"), "{help}");
    }
    assert!(piped(&shell, "help open\n").ok_text().contains("--create"));
    assert!(piped(&shell, "help keyspaces create\n").ok_text().contains("--codec"));
    assert!(piped(&shell, "help commit\n").ok_text().contains("all of it or nothing"));
    piped(&shell, "help nope\n").fails(2);
}

#[test]
fn standard_input_is_the_commands_or_their_input_and_not_both() {
    let shell = with_data();
    shell.run(&["db", "-c", "put empty -"]).ok();
    assert_eq!(shell.run(&["db", "-c", "get empty"]).ok_text(), "\n");
    shell.db_with_input(&["-c", "load - --value line-number; put z 9"], b"x\ny\n").ok();
    assert_eq!(shell.db(&["scan", "--from", "x"]).ok_text(), "x\t1\ny\t2\nz\t9\n");
    let stderr = piped(&shell, "load -\nput k -\n").fails(2);
    assert!(stderr.contains("the commands come from standard input"), "{stderr}");
    shell.db(&["get", "k"]).fails(1);
}

#[test]
fn the_database_stays_open_and_work_of_all_kinds_is_done_on_it() {
    let shell = with_data();
    shell.write("words.txt", b"x\ny\n");
    let text = "load words.txt\ncompact\nvacuum\ncheck\nstats\nkeyspaces\nupgrade\n\
                checkpoint copy\nbackup create kept\ntop --once --interval 100ms\nversion\n\
                keyspaces create old --structure history\nuse old\nput k 1\nput k 2\n\
                history k\nkeyspaces drop old --yes\nuse default\ncount\n";
    let run = piped(&shell, text);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.text().ends_with("\n4\n"), "{run:?}");
    assert_eq!(shell.run(&["--db", "copy", "count"]).ok_text(), "4\n");
    // Another program cannot open it meanwhile, but reads beside it.
    let inner = "count --beside";
    assert!(piped(&shell, &format!("{inner}\n")).code == 2);
    let run = shell.run(&["--beside", "db", "-c", "count; put a 1; begin; count"]);
    assert_eq!((run.code, run.text()), (2, "4\n4\n"));
    assert_eq!(shell.run(&["--read-only", "db", "-c", "get a"]).ok_text(), "1\n");
}

#[test]
fn what_cannot_be_taken_back_needs_a_yes_where_nobody_can_be_asked() {
    let shell = with_data();
    shell.db(&["consumers", "create", "mirror"]).ok();
    shell.db(&["backup", "create", "kept"]).ok();
    for arguments in [
        &["delete", "--prefix", "a"][..],
        &["delete", "--from", "a", "--to", "b"],
        &["delete", "--all"],
        &["restore", "--all", "--at", "0.0"],
        &["restore", "--prefix", "a", "--at", "0.0"],
        &["keyspaces", "drop", "default"],
        &["consumers", "remove", "mirror"],
        &["backup", "remove", "kept", "1"],
        &["backup", "prune", "kept", "--keep", "1"],
        &["backup", "restore", "kept", "1", "db", "--replace"],
    ] {
        let stderr = shell.db(arguments).fails(2);
        assert!(stderr.contains("add --yes"), "{arguments:?}: {stderr}");
    }
    assert_eq!(shell.db(&["count"]).ok_text(), "2\n");
    shell.db(&["delete", "a"]).ok();
    shell.db(&["delete", "--all", "--yes"]).ok();
    shell.run(&["backup", "restore", "kept", "1", "db", "--replace", "--yes"]).ok();
    assert_eq!(shell.db(&["count"]).ok_text(), "2\n");
}
