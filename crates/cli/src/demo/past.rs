//! The demo's steps about the past: a transaction over keyspaces of three structures, and a range
//! that was deleted by mistake and is brought back.

use std::time::{Duration, SystemTime};

use lithedb::base::Clock;
use lithedb::{Error, Keyspace, KeyspaceOptions};

use super::Demo;
use super::claims::Claim;
use super::screen::Screen;
use crate::failure::Failure;
use crate::notation::{count_text, duration_text, time_text};

const SHELF: &str = "shelf";
const LEDGER: &str = "ledger";
const IN: &str = "in";
/// What is lent, all of one shelf.
const TITLES: [&str; 3] = ["Emma", "Middlemarch", "Persuasion"];

/// Two keyspaces beside those of the data set, each of a structure of its own.
struct Library {
    /// Of structure history: what stands on the shelf, and ever did.
    shelf: Keyspace,
    /// Of structure lsm: what happened, as one writes it down.
    ledger: Keyspace,
}

impl Library {
    fn of(demo: &Demo) -> Result<Library, Error> {
        let keyspace = |name, options| match demo.db.keyspace(name) {
            Err(Error::KeyspaceNotFound { .. }) => demo.db.create_keyspace(name, options),
            found => found,
        };
        let shelf = keyspace(SHELF, KeyspaceOptions::history())?;
        Ok(Library { shelf, ledger: keyspace(LEDGER, KeyspaceOptions::lsm())? })
    }
}

/// Writes to three keyspaces of three structures by one transaction; undoes a deletion. Returns the
/// bytes of keys and values that it wrote.
pub fn show(demo: &Demo, screen: &mut Screen) -> Result<u64, Failure> {
    let Library { shelf, ledger } = Library::of(demo)?;
    let mut given_bytes = 0;
    demo.db.update(|transaction| {
        given_bytes = 0;
        for title in TITLES {
            let bought = format!("{title}: bought");
            given_bytes += title.len() + IN.len() + bought.len() + 1;
            transaction.put(&shelf, title, IN)?;
            transaction.put(&ledger, bought, "1")?;
        }
        given_bytes += SHELF.len() + 1;
        transaction.put(&demo.visits, SHELF, TITLES.len().to_string())?;
        Ok::<_, Error>(())
    })?;
    let stamp_of = |keyspace: &Keyspace, key: &str| {
        Ok::<_, Error>(keyspace.get_entry(key)?.map(|entry| entry.seqno))
    };
    let stamp = stamp_of(&shelf, TITLES[0])?;
    let is_one = stamp.is_some()
        && stamp_of(&ledger, &format!("{}: bought", TITLES[0]))? == stamp
        && stamp_of(&demo.visits, SHELF)? == stamp;
    Claim("a transaction over three structures has one stamp").holds(is_one)?;
    let stamp = stamp.unwrap_or_default();
    let text = format!("{stamp} on keyspaces of flex, lsm and history");
    screen.fact("one transaction", &text)?;

    shelf.clear()?;
    Claim("the shelf is empty").holds(shelf.is_empty()?)?;
    let start = demo.clock.monotonic();
    let found = demo.db.snapshot_at(stamp)?.count::<&str>(&shelf, ..)?;
    let report = shelf.restore_range::<&str>(.., stamp)?;
    let elapsed = demo.clock.monotonic() - start;
    let is_back = found == report.put && shelf.len()? == found && found >= TITLES.len() as u64;
    Claim("what was deleted is back").holds(is_back)?;
    let text = format!(
        "all {} keys of a keyspace, as of {}, in {}",
        count_text(report.put),
        time_text(SystemTime::UNIX_EPOCH + Duration::from_millis(stamp.millis())),
        duration_text(elapsed)
    );
    screen.fact("undeleted", &text)?;
    let mut versions = 0;
    for version in shelf.history(TITLES[0], stamp..)? {
        versions += u64::from(version?.value.is_some());
    }
    Claim("nothing of the history is lost").holds(versions == 2)?;
    let text = format!("put, deleted and put again: {:?} has its three versions", TITLES[0]);
    screen.fact("history", &text)?;
    // Once more, by what was restored.
    given_bytes += TITLES.iter().map(|title| title.len() + IN.len()).sum::<usize>();
    Ok(given_bytes as u64)
}
