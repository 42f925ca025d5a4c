//! The shell, as somebody types in it.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::shell::Shell;
use crate::terminal::Terminal;

fn opened(shell: &Shell, variables: &[(&str, &str)]) -> Terminal {
    let mut command = shell.command(&["db"]);
    command.envs(variables.iter().copied());
    let mut terminal = Terminal::start(command, 24, 80);
    terminal.wait_for("lithe> ");
    terminal
}

/// Leaves, once the shell waits for a line: what is typed before is read by the terminal itself.
fn leave(mut terminal: Terminal) {
    terminal.wait_for("lithe> ");
    terminal.type_text("\x04");
    assert_eq!(terminal.end(), 0);
}

fn with_data() -> Shell {
    let shell = Shell::new();
    shell.db(&["put", "greeting", "hello"]).ok();
    shell
}

#[test]
fn commands_run_until_ctrl_d_and_failures_do_not_end_it() {
    let shell = with_data();
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("get greeting\r");
    terminal.wait_for("\nhello\r\n");
    terminal.wait_for("lithe> ");
    terminal.type_text("get nobody\r");
    terminal.wait_for("is not in keyspace");
    terminal.wait_for("lithe> ");
    terminal.type_text("frobnicate\r");
    terminal.wait_for("there is no command `frobnicate`; help lists");
    terminal.wait_for("lithe> ");
    terminal.type_text("load -\r");
    terminal.wait_for("the commands come from standard input");
    terminal.wait_for("lithe> ");
    terminal.type_text("put \x1b\x7f\x15count\r"); // The line is killed before it is done.
    terminal.wait_for("\n1\r\n");
    leave(terminal);
}

#[test]
fn a_command_goes_on_on_the_next_line_and_ctrl_c_cancels_it() {
    let shell = with_data();
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("put k 'one\r");
    terminal.wait_for("...> ");
    terminal.type_text("two'\r");
    terminal.wait_for("lithe> ");
    terminal.type_text("get k\r");
    terminal.wait_for("one\\x0atwo\r\n");
    terminal.wait_for("lithe> ");
    terminal.type_text("put k 'three\r");
    terminal.wait_for("...> ");
    terminal.type_text("\x03");
    terminal.wait_for("lithe> ");
    terminal.type_text("begin\r");
    terminal.wait_for("lithe*> ");
    terminal.type_text("put k four\r");
    terminal.wait_for("lithe*> ");
    terminal.type_text("rollback\r");
    terminal.wait_for("lithe> ");
    terminal.type_text("batch\r");
    terminal.wait_for("lithe+> ");
    terminal.type_text("put k five\r");
    terminal.wait_for("lithe+> ");
    terminal.type_text(".quit\r");
    terminal.wait_for("the batch was not committed");
    assert_eq!(terminal.end(), 0);
    assert_eq!(shell.db(&["get", "k"]).ok_text(), "one\ntwo");
}

#[test]
fn tab_completes_commands_and_keys() {
    let shell = with_data();
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("ge\tgree\t\r");
    terminal.wait_for("get greeting");
    terminal.wait_for("\nhello\r\n");
    leave(terminal);
}

#[test]
fn lines_are_kept_for_their_owner_but_those_that_begin_with_a_blank() {
    let shell = with_data();
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("get greeting\r");
    terminal.wait_for("hello");
    terminal.wait_for("lithe> ");
    terminal.type_text(" put secret sesame\r");
    terminal.wait_for("lithe> ");
    terminal.type_text(".history\r");
    terminal.wait_for("    1  get greeting\r\n");
    terminal.wait_for("    2  .history\r\n");
    leave(terminal);
    let path = shell.path("state/lithe/history");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept.contains("get greeting") && !kept.contains("sesame"), "{kept}");
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("\x1b[A\x1b[A\r"); // The last but one, again.
    terminal.wait_for("\nhello\r\n");
    leave(terminal);
    let mut terminal = opened(&shell, &[("LITHE_HISTORY", "off")]);
    terminal.type_text("get nothing-kept\r");
    terminal.wait_for("is not in keyspace");
    leave(terminal);
    assert!(!std::fs::read_to_string(&path).unwrap().contains("nothing-kept"));
}

#[test]
fn who_types_is_asked_before_something_is_destroyed() {
    let shell = with_data();
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("delete --prefix g\r");
    terminal.wait_for("Go on? [y/N] ");
    terminal.type_text("n\r");
    terminal.wait_for("nothing was done");
    terminal.wait_for("lithe> ");
    terminal.type_text("count\r");
    terminal.wait_for("\n1\r\n");
    terminal.wait_for("lithe> ");
    terminal.type_text("delete --all\r");
    terminal.wait_for("Go on? [y/N] ");
    terminal.type_text("y\r");
    terminal.wait_for("lithe> ");
    terminal.type_text("count\r");
    terminal.wait_for("\n0\r\n");
    leave(terminal);
}

#[test]
fn long_output_goes_to_a_pager_and_short_output_does_not() {
    let shell = with_data();
    let rows: String = (0..100).map(|number| format!("row{number:03}\n")).collect();
    shell.db_with_input(&["load", "-"], rows.as_bytes()).ok();
    let mut terminal = opened(&shell, &[("LITHE_PAGER", "sed s/^/paged:/")]);
    terminal.type_text("scan --keys-only\r");
    terminal.wait_for("paged:row099");
    terminal.wait_for("lithe> ");
    terminal.type_text("scan --keys-only --limit 3\r");
    assert!(!terminal.wait_for("row001\r\n").contains("paged"));
    leave(terminal);
}

#[test]
fn ctrl_c_ends_the_command_and_not_the_shell() {
    let shell = with_data();
    let rows: String = (0..200_000).map(|number| format!("row{number:06}\n")).collect();
    shell.db_with_input(&["load", "--ingest", "-"], rows.as_bytes()).ok();
    let mut terminal = opened(&shell, &[("LITHE_PAGER", "off")]);
    terminal.type_text("scan --keys-only --prefix row\r");
    terminal.wait_for("row000100");
    terminal.interrupt(); // As Ctrl-C does: the terminal shows no more until it is waited for.
    terminal.wait_for("interrupted");
    terminal.wait_for("lithe> ");
    terminal.type_text("count --prefix row\r");
    terminal.wait_for("\n200000\r\n");
    leave(terminal);
}

#[test]
fn figures_are_watched_until_q() {
    let shell = with_data();
    let mut terminal = opened(&shell, &[]);
    terminal.type_text("top --interval 100ms\r");
    terminal.wait_for("q ends it");
    terminal.wait_for("throughput");
    terminal.type_text("q");
    leave(terminal);
    let mut watched = Terminal::start(shell.command(&["--db", "db", "top"]), 24, 80);
    watched.wait_for("beside its writer");
    watched.type_text("q");
    assert_eq!(watched.end(), 0);
}

#[test]
fn names_in_figures_for_others_steer_no_terminal() {
    let shell = Shell::new();
    shell.db(&["keyspaces", "create", "evil\u{1b}[2Jname"]).ok();
    let arguments = ["--db", "db", "stats", "--format", "prometheus"];
    let exact = shell.run(&arguments).ok_text();
    assert!(exact.contains("evil\u{1b}[2Jname"), "{exact}");
    let mut terminal = Terminal::start(shell.command(&arguments), 24, 80);
    let (status, shown) = terminal.end_showing();
    assert!(status.success() && shown.contains("evil\\u{1b}[2Jname"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

/// What leaves the other screen, and shows the cursor.
const LEFT: &str = "\u{1b}[?25h\u{1b}[?1049l";

#[test]
fn a_signal_that_ends_what_watches_gives_the_terminal_back() {
    let shell = with_data();
    for signal in [Signal::TERM, Signal::HUP] {
        let mut watched = Terminal::start(shell.command(&["--db", "db", "top"]), 24, 80);
        watched.wait_for("beside its writer");
        assert!(!watched.has_usual_modes());
        watched.send(signal);
        let (status, shown) = watched.end_showing();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{shown}");
        assert!(shown.ends_with(LEFT), "{signal:?}: {shown:?}");
        assert!(watched.has_usual_modes(), "{signal:?}");
    }
}
