//! Encrypted databases: where keys come from, what is refused, another key.

use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use crate::shell::{Run, Shell};

const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// With `key`, which only its owner can read, and `other`.
fn shell_with_keys() -> Shell {
    let shell = Shell::new();
    shell.write("key", DIGITS.as_bytes());
    shell.write("other", &[7; 32]);
    for name in ["key", "other"] {
        std::fs::set_permissions(shell.path(name), Permissions::from_mode(0o600)).unwrap();
    }
    shell
}

fn with_key(shell: &Shell, key: &str, arguments: &[&str]) -> Run {
    shell.db(&[&["--key-file", key][..], arguments].concat())
}

/// A line for `sh`, in which `$LITHE` is the program with the database.
fn line(shell: &Shell, line: &str) -> Run {
    let program = format!("LITHE='{} --db safe.lithe'; {line}", env!("CARGO_BIN_EXE_lithe"));
    Run::of(shell.shell_command(&program).output().unwrap())
}

#[test]
fn a_database_is_created_encrypted_and_opens_with_its_key() {
    let shell = shell_with_keys();
    with_key(&shell, "key", &["create", "--encrypted"]).ok();
    with_key(&shell, "key", &["put", "otter", "swims in the river"]).ok();
    assert_eq!(with_key(&shell, "key", &["get", "otter"]).ok(), b"swims in the river");
    let needed = shell.db(&["get", "otter"]).fails(2);
    assert!(needed.contains("--key-file"), "{needed}");
    let wrong = with_key(&shell, "other", &["get", "otter"]).fails(2);
    assert!(wrong.contains("another key"), "{wrong}");
    with_key(&shell, "key", &["create", "--encrypted"]).fails(2);
    with_key(&shell, "key", &["check"]).ok();
}

#[test]
fn create_wants_the_key_and_the_word_for_it() {
    let shell = shell_with_keys();
    shell.db(&["create", "--encrypted"]).fails(2);
    with_key(&shell, "key", &["create"]).fails(2);
    shell.db(&["create"]).ok();
    let error = with_key(&shell, "key", &["put", "k", "v"]).fails(2);
    assert!(error.contains("not encrypted"), "{error}");
    assert_eq!(shell.db(&["count"]).ok_text(), "0\n");
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let shell = shell_with_keys();
    for mode in [0o644, 0o640, 0o604] {
        std::fs::set_permissions(shell.path("key"), Permissions::from_mode(mode)).unwrap();
        let error = with_key(&shell, "key", &["create", "--encrypted"]).fails(2);
        assert!(error.contains("chmod"), "{error}");
    }
    std::fs::set_permissions(shell.path("key"), Permissions::from_mode(0o400)).unwrap();
    with_key(&shell, "key", &["create", "--encrypted"]).ok();
    shell.write("short", b"123");
    std::fs::set_permissions(shell.path("short"), Permissions::from_mode(0o600)).unwrap();
    with_key(&shell, "short", &["count"]).fails(2);
    with_key(&shell, "missing", &["count"]).fails(3);
}

#[test]
fn a_passphrase_or_key_that_is_too_long_is_refused_and_not_cut() {
    let shell = Shell::new();
    let with = |option: &str, bytes: &[u8], command: &[&str]| {
        shell.write("secret", bytes);
        let private = Permissions::from_mode(0o600);
        std::fs::set_permissions(shell.path("secret"), private).unwrap();
        shell.db(&[&[option, "secret"][..], command].concat())
    };
    let create = ["create", "--encrypted"];
    for line in [vec![b'a'; 5000], vec![b'a'; 4097], "ä".repeat(2500).into_bytes()] {
        let said = with("--passphrase-file", &line, &create).fails(2);
        assert!(said.contains("a passphrase has 4096 bytes at most"), "{said}");
    }
    with("--passphrase-file", b"\xFF\n", &create).fails(2);
    let longest = [&[b'a'; 4096][..], b"\r\nzzzz"].concat();
    with("--passphrase-file", &longest, &create).ok();
    with("--passphrase-file", &longest[..4095], &["count"]).fails(2);
    with("--passphrase-file", &longest[..4096], &["count"]).ok();
    let key = [DIGITS.as_bytes(), &[b' '; 40], b"more"].concat();
    let said = with("--key-file", &key, &["count"]).fails(2);
    assert!(said.contains("not 96 bytes and more"), "{said}");
}

#[test]
fn keys_and_passphrases_come_by_descriptors_and_rekey_changes_them() {
    let shell = shell_with_keys();
    line(&shell, "$LITHE --key-fd 3 create --encrypted 3< other").ok();
    line(&shell, "$LITHE --key-file other put k v").ok();
    shell.write("phrase", b"correct horse\nsecond line");
    line(&shell, "$LITHE --key-file other rekey --new-passphrase-fd 3 3< phrase").ok();
    line(&shell, "$LITHE --key-file other get k").fails(2);
    let got = line(&shell, "$LITHE --passphrase-fd 3 get k 3< phrase").ok();
    assert_eq!(got, b"v");
    shell.write("wrong", b"correct house\n");
    line(&shell, "$LITHE --passphrase-fd 3 get k 3< wrong").fails(2);
    line(&shell, "$LITHE --passphrase-fd 3 rekey --new-key-file key 3< phrase").ok();
    assert_eq!(line(&shell, "$LITHE --key-file key get k").ok(), b"v");
    line(&shell, "$LITHE --key-file key rekey --data").ok();
    assert_eq!(line(&shell, "$LITHE --key-file key get k").ok(), b"v");
    line(&shell, "$LITHE --key-file key rekey").fails(2);
    line(&shell, "$LITHE --key-file key --key-fd 3 count 3< key").fails(2);
}

#[test]
fn inspect_opens_pieces_with_the_key() {
    let shell = shell_with_keys();
    with_key(&shell, "key", &["put", "otter", "swims"]).ok();
    let path = std::fs::read_dir(shell.path("")).unwrap();
    let database =
        path.map(|entry| entry.unwrap().path()).find(|path| path.join("KEYRING").exists()).unwrap();
    let log = database.join("wal/00000001.wal");
    let log = log.to_str().unwrap();
    let run = |arguments: &[&str]| Run::of(shell.command(arguments).output().unwrap());
    let without = run(&["inspect", log, "--entries"]).ok_text();
    assert!(without.contains("sealed") && !without.contains("otter"), "{without}");
    let with = run(&["--key-file", "key", "inspect", log, "--entries"]).ok_text();
    assert!(with.contains("otter"), "{with}");
    let keyring = database.join("KEYRING");
    let slots = run(&["inspect", keyring.to_str().unwrap()]).ok_text();
    assert!(slots.contains("opened by"), "{slots}");
}

#[test]
fn a_key_in_a_variable_and_a_passphrase_in_a_file_open_and_rekey() {
    let shell = shell_with_keys();
    let exported = format!("export KEY={}", DIGITS.trim());
    line(&shell, &format!("{exported}; $LITHE --key-env KEY create --encrypted")).ok();
    line(&shell, "$LITHE --key-file key put k v").ok();
    assert_eq!(line(&shell, &format!("{exported}; $LITHE --key-env KEY get k")).ok(), b"v");
    let missing = line(&shell, "$LITHE --key-env NOT_THERE get k").fails(2);
    assert!(missing.contains("NOT_THERE"), "{missing}");
    let short = line(&shell, "export KEY=00ff; $LITHE --key-env KEY get k").fails(2);
    assert!(short.contains("64") && !short.contains("00ff"), "{short}");
    shell.write("phrase", b"correct horse\n");
    let rekey = "$LITHE --key-file key rekey --new-passphrase-file phrase";
    let readable = line(&shell, &format!("chmod 644 phrase; {rekey}")).fails(2);
    assert!(readable.contains("chmod"), "{readable}");
    line(&shell, &format!("chmod 600 phrase; {rekey}")).ok();
    assert_eq!(line(&shell, "$LITHE --passphrase-file phrase get k").ok(), b"v");
    let rekey = "$LITHE --passphrase-file phrase rekey --new-key-env KEY";
    line(&shell, &format!("{exported}; {rekey}")).ok();
    assert_eq!(line(&shell, "$LITHE --key-file key get k").ok(), b"v");
}

#[test]
fn a_keyspace_has_a_key_of_its_own_until_it_is_dropped() {
    let shell = shell_with_keys();
    with_key(&shell, "key", &["create", "--encrypted"]).ok();
    with_key(&shell, "key", &["keyspaces", "create", "customer", "--own-key"]).ok();
    with_key(&shell, "key", &["--keyspace", "customer", "put", "name", "Ada"]).ok();
    with_key(&shell, "key", &["keyspaces", "create", "others"]).ok();
    let list = with_key(&shell, "key", &["keyspaces", "--format", "jsonl"]).ok_text();
    let has_it = |name: &str| list.lines().find(|line| line.contains(name)).unwrap();
    assert!(has_it("customer").contains("own_key") && !has_it("others").contains("own_key"));
    let name = with_key(&shell, "key", &["--keyspace", "customer", "get", "name"]).ok();
    assert_eq!(name, b"Ada");
    let dropped = with_key(&shell, "key", &["keyspaces", "drop", "customer", "--yes"]);
    assert!(dropped.stderr.contains("its key is destroyed\n"), "{dropped:?}");
    dropped.ok();
    with_key(&shell, "key", &["check"]).ok();
    // Where there are no keys, there is none to be had.
    let refused = shell.db(&["keyspaces", "create", "more", "--own-key"]).fails(2);
    assert!(refused.contains("--key-file"), "{refused}");
    shell.run(&["--db", "plain.lithe", "put", "k", "v"]).ok();
    let plain = ["--db", "plain.lithe", "keyspaces", "create", "more", "--own-key"];
    let refused = shell.run(&plain).fails(2);
    assert!(refused.contains("not encrypted"), "{refused}");
    // Nor is one made.
    let none = ["--db", "none.lithe", "keyspaces", "create", "more", "--own-key"];
    let refused = shell.run(&none).fails(2);
    assert!(refused.contains("--key-file") && !shell.path("none.lithe").exists(), "{refused}");
}

#[test]
fn a_database_that_is_made_on_the_way_is_encrypted_if_a_key_is_named() {
    let shell = shell_with_keys();
    with_key(&shell, "key", &["put", "otter", "swims"]).ok();
    shell.db(&["get", "otter"]).fails(2);
    assert_eq!(with_key(&shell, "key", &["get", "otter"]).ok(), b"swims");
}

#[test]
fn what_is_not_encrypted_takes_no_key() {
    let shell = shell_with_keys();
    let run = |arguments: &[&str]| shell.run(&[&["--key-file", "key"], arguments].concat());
    for arguments in [&["space", "insert", "text.space"][..], &["bench", "W1", "--quick"]] {
        let error = run(arguments).fails(2);
        assert!(error.contains("key"), "{error}");
    }
    assert!(!shell.path("text.space").exists());
}

#[test]
fn a_checkpoint_has_the_key_that_its_database_had() {
    let shell = shell_with_keys();
    with_key(&shell, "key", &["put", "otter", "swims in the river"]).ok();
    with_key(&shell, "key", &["checkpoint", "copy.lithe"]).ok();
    with_key(&shell, "key", &["rekey", "--new-key-file", "other", "--data"]).ok();
    with_key(&shell, "other", &["put", "otter", "sleeps"]).ok();
    let of_copy = |key: &str, arguments: &[&str]| {
        shell.run(&[&["--db", "copy.lithe", "--key-file", key], arguments].concat())
    };
    assert_eq!(of_copy("key", &["get", "otter"]).ok(), b"swims in the river");
    of_copy("key", &["check"]).ok();
    of_copy("other", &["check"]).fails(2);
    shell.run(&["--db", "copy.lithe", "check"]).fails(2);
    // Both can be compared, with two keys.
    let differ = with_key(&shell, "other", &["diff", "copy.lithe", "--other-key-file", "key"]);
    assert_eq!(differ.code, 1, "{differ:?}");
    assert!(differ.text().contains("sleeps") && differ.text().contains("river"), "{differ:?}");
    with_key(&shell, "other", &["diff", "copy.lithe"]).fails(2);
    // And with what is not encrypted.
    shell.run(&["--db", "plain.lithe", "put", "otter", "sleeps"]).ok();
    with_key(&shell, "other", &["diff", "plain.lithe"]).ok();
}

#[test]
fn a_table_for_an_encrypted_database_is_sealed() {
    let shell = shell_with_keys();
    with_key(&shell, "key", &["create", "--encrypted"]).ok();
    shell.write("words", b"marten\notter\n");
    with_key(&shell, "key", &["load", "--table", "words.tbl", "words"]).ok();
    let mut bytes = Vec::new();
    let mut table = File::options().read(true).open(shell.path("words.tbl")).unwrap();
    table.read_to_end(&mut bytes).unwrap();
    assert!(!bytes.windows(5).any(|window| window == b"otter"));
    with_key(&shell, "key", &["ingest", "words.tbl"]).ok();
    assert_eq!(with_key(&shell, "key", &["count"]).ok_text().trim(), "2");
    let other = ["load", "--table", "more.tbl", "--codec", "lz4", "words"];
    with_key(&shell, "key", &other).fails(2);
    // Without a key it is one for databases that are not encrypted.
    shell.run(&["load", "--table", "plain.tbl", "words"]).ok();
    let error = with_key(&shell, "key", &["ingest", "plain.tbl"]).fails(2);
    assert!(error.contains("not encrypted"), "{error}");
}
