//! People by number, found by city and by mail address; and pages, found by each word.
//!
//! `cargo run --example secondary_index`

use lithedb::{Db, Error, ExtractError, Index, IndexKeys, IndexOptions, Result};

/// Each word of a page, in lower case.
fn words(_key: &[u8], value: &[u8], keys: &mut IndexKeys) -> std::result::Result<(), ExtractError> {
    let text = std::str::from_utf8(value)?; // Else the write is refused.
    for word in text.split_whitespace() {
        keys.push(word.to_lowercase());
    }
    Ok(())
}

fn show(what: &str, index: &Index, index_key: &str) -> Result<()> {
    println!("{what} {index_key}:");
    for entry in index.get(index_key) {
        let entry = entry?;
        let value = entry.value()?; // Of the same moment as the index.
        let key = String::from_utf8_lossy(entry.primary_key());
        println!("  {key}: {}", String::from_utf8_lossy(&value));
    }
    Ok(())
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    // An extractor is registered at every opening; the database knows its name alone.
    let db = Db::builder().index_extractor("words", words).open(dir.path().join("people.lithe"))?;

    let people = db.keyspace_or_create("people")?;
    people.put("17", "Ada,London,ada@example.org")?;
    people.put("18", "Carl,Brunswick,carl@example.org")?;
    // Creates it, or goes on building it, and has what is there already in it.
    let by_city = people.index_or_create("by city", "field:,:2", IndexOptions::new())?;
    let by_mail = people.index_or_create("by mail", "field:,:3", IndexOptions::new().unique())?;
    people.put("19", "Augustus,London,augustus@example.org")?; // In the same commit.
    show("who lives in", &by_city, "London")?;

    match people.put("20", "Eve,Paris,ada@example.org") {
        Err(Error::UniqueViolation { index, .. }) => println!("refused by the index {index:?}"),
        other => panic!("it is there twice: {other:?}"),
    }
    assert_eq!(by_mail.count::<&str>(..)?, 3);

    let pages = db.keyspace_or_create("pages")?;
    let by_word = pages.index_or_create("by word", "words", IndexOptions::new())?;
    pages.put("home", "The quick brown fox")?;
    pages.put("about", "the lazy dog")?;
    show("pages with", &by_word, "the")?;
    pages.delete("home")?; // Its index entries go as well.
    assert_eq!(by_word.get("fox").count(), 0);
    Ok(())
}
