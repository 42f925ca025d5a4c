//! Pages of a wiki with all their versions: what was, who changed what, and undo.
//!
//! `cargo run --example time_travel_undo`

use lithedb::{Db, Keyspace, KeyspaceOptions, Result, SeqNo};

fn show(pages: &Keyspace, key: &str, at: SeqNo) -> Result<()> {
    match pages.get_at(key, at)? {
        Some(value) => println!("{key} as of {at}: {}", String::from_utf8_lossy(&value)),
        None => println!("{key} as of {at}: not there"),
    }
    Ok(())
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::open(dir.path().join("wiki.lithe"))?;
    // The last hundred versions of each page, whatever their age.
    let options = KeyspaceOptions::history().keep_versions(100);
    let pages = db.create_keyspace("pages", options)?;

    let first = pages.put("home", "Welcome")?;
    pages.put("about", "We are two people")?;
    let good = pages.put("home", "Welcome to our wiki")?;
    let vandal = pages.put("home", "Bananas")?;
    pages.delete("about")?;
    for at in [first, good, vandal] {
        show(&pages, "home", at)?;
    }

    println!("the history of home, the newest first:");
    for version in pages.history("home", ..)? {
        let version = version?;
        let text = version.value.as_deref().map_or("deleted".into(), String::from_utf8_lossy);
        println!("  {}: {text}", version.seqno);
    }

    let now = db.snapshot().seqno();
    println!("changed since the good version:");
    for difference in pages.differences::<&str>(.., good, now)? {
        println!("  {}", String::from_utf8_lossy(&difference?.key));
    }

    // Undo: a commit like others, so that it can be undone as well.
    let report = pages.restore_range::<&str>(.., good)?;
    println!("put back {}, deleted {}", report.put, report.deleted);
    assert_eq!(pages.get("home")?.as_deref(), Some(&b"Welcome to our wiki"[..]));
    assert!(pages.contains("about")?);
    assert_eq!(pages.history("home", ..)?.count(), 4);
    Ok(())
}
