//! `lithe checkpoint`: a database beside the database.

use crate::shell::Shell;

#[test]
fn a_checkpoint_has_what_there_was_and_is_made_once() {
    let shell = Shell::new();
    shell.db(&["put", "otter", "swims"]).ok();
    let copy = shell.path("copy.lithe");
    let copy = copy.to_str().unwrap();
    let said = shell.db(&["checkpoint", copy]).ok_text();
    assert!(said.contains("linked") && said.contains("copied"), "{said}");
    shell.db(&["put", "otter", "sleeps"]).ok();
    let then = shell.run(&["--db", copy, "get", "otter"]).ok_text();
    assert_eq!(then, "swims");
    shell.run(&["--db", copy, "check"]).ok();
    let refused = shell.db(&["checkpoint", copy]).fails(2);
    assert!(refused.contains("copy.lithe already"), "{refused}");
    let elsewhere = shell.path("second.lithe");
    let elsewhere = elsewhere.to_str().unwrap();
    let json = shell.db(&["checkpoint", elsewhere, "--format", "json"]).ok_text();
    assert!(json.contains("\"linked_files\"") && json.contains("\"stamp\""), "{json}");
}
