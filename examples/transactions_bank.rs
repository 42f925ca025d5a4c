//! Threads move money between accounts; whoever counts it meanwhile always finds all of it.
//!
//! `cargo run --example transactions_bank`

use std::thread;

use lithedb::{Db, Durability, Error, Keyspace, Result, Slice, Transaction};

const ACCOUNTS: u64 = 10;
const IN_EACH: i64 = 100;
const TRANSFERS: u64 = 500;

/// Why a transfer did not happen.
#[derive(Debug)]
enum Refused {
    TooLittle,
    Store(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Store(error)
    }
}

fn amount(value: Option<Slice>) -> i64 {
    value.and_then(|bytes| bytes[..].try_into().ok()).map_or(0, i64::from_le_bytes)
}

fn transfer(
    tx: &mut Transaction,
    accounts: &Keyspace,
    (from, to): (u64, u64),
    cents: i64,
) -> std::result::Result<(), Refused> {
    let has = amount(tx.get(accounts, from.to_be_bytes())?);
    if has < cents {
        return Err(Refused::TooLittle); // Nothing has happened.
    }
    tx.put(accounts, from.to_be_bytes(), (has - cents).to_le_bytes())?;
    // Read behind the first put: right also where both are the same account.
    let had = amount(tx.get(accounts, to.to_be_bytes())?);
    tx.put(accounts, to.to_be_bytes(), (had + cents).to_le_bytes())?;
    Ok(())
}

fn work(db: &Db, accounts: &Keyspace, seed: u64) -> Result<u64> {
    let (mut state, mut refused) = (seed, 0);
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..TRANSFERS {
        let between = (draw(ACCOUNTS), draw(ACCOUNTS));
        let cents = draw(80) as i64;
        // Run again after a conflict, so it changes nothing outside of the transaction.
        let done =
            db.update_with(Durability::Buffered, |tx| transfer(tx, accounts, between, cents));
        match done {
            Ok(()) => {}
            Err(Refused::TooLittle) => refused += 1,
            Err(Refused::Store(error)) => return Err(error),
        }
    }
    Ok(refused)
}

fn sum(db: &Db, accounts: &Keyspace) -> Result<i64> {
    db.view(|snapshot| {
        snapshot.iter(accounts).map(|entry| Ok(amount(Some(entry?.value)))).sum::<Result<i64>>()
    })
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::open(dir.path().join("bank.lithe"))?;
    let accounts = db.keyspace_or_create("accounts")?;
    for account in 0..ACCOUNTS {
        accounts.put(account.to_be_bytes(), IN_EACH.to_le_bytes())?;
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|seed| {
                scope.spawn({
                    let (db, accounts) = (&db, &accounts);
                    move || work(db, accounts, seed)
                })
            })
            .collect();
        for _ in 0..20 {
            assert_eq!(sum(&db, &accounts)?, ACCOUNTS as i64 * IN_EACH);
        }
        for worker in workers {
            let refused = worker.join().expect("it does not panic")?;
            println!("a thread is done: {refused} of {TRANSFERS} transfers had too little");
        }
        Ok::<_, Error>(())
    })?;
    db.sync()?; // Everything was Buffered; now it is on the disk.
    let stats = db.stats();
    println!("{} commits, {} conflicts", stats.transaction_commits, stats.transaction_conflicts);
    println!("there are {} cents, as in the beginning", sum(&db, &accounts)?);
    Ok(())
}
