//! `lithe space`: bytes in and out of the middle, and what is wrong with a damaged one.

use crate::damage::flip_a_bit;
use crate::shell::{Run, Shell};

fn with_input(shell: &Shell, arguments: &[&str], input: &[u8]) -> Run {
    shell.db_with_input(arguments, input)
}

#[test]
fn bytes_go_into_the_middle_and_out_of_it() {
    let shell = Shell::new();
    let mut expected: Vec<u8> = (0..700_000u32).flat_map(u32::to_le_bytes).collect();
    with_input(&shell, &["space", "insert", "s"], &expected).ok();
    assert!(shell.run(&["space", "read", "s"]).ok() == expected);
    with_input(&shell, &["space", "insert", "s", "--at", "1MiB"], b"in the middle").ok();
    expected.splice(1 << 20..1 << 20, *b"in the middle");
    with_input(&shell, &["space", "write", "s", "--at", "5"], b"over").ok();
    expected[5..9].copy_from_slice(b"over");
    shell.run(&["space", "collapse", "s", "--from", "100000", "--to", "900000"]).ok();
    expected.drain(100_000..900_000);
    shell.run(&["space", "collapse", "s", "--from", "1700000"]).ok();
    expected.truncate(1_700_000);
    assert!(shell.run(&["space", "read", "s"]).ok() == expected);
    let part = shell.run(&["space", "read", "s", "--from", "3", "--to", "12"]).ok();
    assert_eq!(part, expected[3..12]);
    let beyond = shell.run(&["space", "read", "s", "--from", "1699990", "--to", "9MiB"]).ok();
    assert_eq!(beyond, expected[1_699_990..]);
}

#[test]
fn a_space_tells_what_it_has_and_gives_room_back() {
    let shell = Shell::new();
    with_input(&shell, &["space", "insert", "s"], &[7; 300_000]).ok();
    for at in ["10", "1000", "100000"] {
        with_input(&shell, &["space", "insert", "s", "--at", at], b"x").ok();
    }
    let stats = shell.run(&["space", "stats", "s", "--format", "json"]).ok_text();
    assert!(stats.contains("\"length\":300003") && stats.contains("\"extents\":7"), "{stats}");
    let said = shell.run(&["space", "defragment", "s"]);
    assert!(said.stderr.contains("7 extents before, 1 after"), "{said:?}");
    shell.run(&["space", "collapse", "s", "--to", "200000"]).ok();
    shell.run(&["space", "collect", "s"]).ok();
    let stats = shell.run(&["space", "stats", "s"]).ok_text();
    assert!(stats.contains("length") && stats.contains("write amplification"), "{stats}");
    assert_eq!(shell.run(&["space", "tags", "s"]).ok_text(), "");
    let checked = shell.run(&["space", "check", "s"]).ok_text();
    assert!(checked.starts_with("ok: "), "{checked}");
}

#[test]
fn wrong_places_and_damage_have_their_exit_codes() {
    let shell = Shell::new();
    for command in ["read", "collapse", "tags", "collect", "stats", "check"] {
        shell.run(&["space", command, "none"]).fails(1);
    }
    assert!(!shell.path("none").exists());
    with_input(&shell, &["space", "insert", "s"], b"0123456789").ok();
    shell.run(&["space", "collapse", "s", "--from", "5", "--to", "11"]).fails(2);
    with_input(&shell, &["space", "insert", "s", "--at", "11"], b"x").fails(2);
    flip_a_bit(&shell.path("s").join("seg-00000001"), 4100);
    assert!(shell.run(&["space", "read", "s"]).fails(4).contains("seg-00000001"));
    let checked = shell.run(&["space", "check", "s"]);
    assert!(checked.text().contains("seg-00000001"), "{checked:?}");
    checked.fails(4);
}
