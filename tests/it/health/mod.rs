//! What a database says of itself, and does, when its disk is full, fails or takes long, and when
//! code of the application's panics.

mod disk_full;
mod io_errors;
mod one_keyspace;
mod panics;
mod slow;
mod syncs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lithe_sim::setup::Setup;
use lithedb::storage::SimStorage;
use lithedb::{Background, Builder, Db, Health, HealthState, Keyspace};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The smallest of everything, with a reserve.
fn tiny(storage: &SimStorage, reserve: u64) -> Builder {
    let setup = Setup { disk_reserve: reserve, ..Setup::tiny(1) };
    setup.builder(Arc::new(storage.clone()), Arc::default(), 0)
}

/// The same with threads, and the system's clock: that of a simulation does not go on by itself.
fn with_threads(builder: Builder) -> Builder {
    builder.background(Background::Threads).clock(Arc::new(lithedb::base::SystemClock::new()))
}

/// Waits for what background threads bring about; it is to come, however long it takes.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    const TRIES: u32 = 60_000;
    for _ in 0..TRIES {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

/// What a listener was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Health>>>);

impl Told {
    fn listener(&self) -> impl Fn(&Health) + Send + Sync + 'static {
        let told = Arc::clone(&self.0);
        move |health| told.lock().unwrap().push(health.clone())
    }

    fn states(&self) -> Vec<HealthState> {
        self.0.lock().unwrap().iter().map(|health| health.state.clone()).collect()
    }
}

fn is_full(db: &Db) -> bool {
    matches!(db.health().state, HealthState::DiskFull { .. })
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Puts key after key until that fails; the rows that are there, and why.
fn put_until_refused(keyspace: &Keyspace, rows: &mut Rows) -> lithedb::Error {
    for number in 0..200_000_u32 {
        let (key, value) = (key(number % 4000), [number as u8; 120]);
        match keyspace.put(key, value) {
            Ok(_) => drop(rows.insert(key.to_vec(), value.to_vec())),
            Err(error) => return error,
        }
    }
    panic!("nothing is refused");
}
