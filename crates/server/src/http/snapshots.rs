//! Moments that clients hold: each for the client that took it, for a time from its last use on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use lithedb::Snapshot;
use lithedb::base::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::{Ask, Outcome, json_answer, ok_json};
use super::failure::{Code, Failure};
use super::moment::stamp_json;
use crate::auth::Principal;
use crate::config::Limits;
use crate::moment::{millis_text, time_text};

const ID_LEN: usize = 16;

/// Those that are held.
#[derive(Debug)]
pub struct Snapshots {
    count_max: usize,
    time: Duration,
    held: Mutex<HashMap<String, Held>>,
}

#[derive(Debug)]
struct Held {
    snapshot: Snapshot,
    owner: String,
    until: Instant,
}

impl Snapshots {
    pub fn new(limits: &Limits) -> Snapshots {
        let (count_max, time) = (limits.snapshots, limits.snapshot_time);
        Snapshots { count_max, time, held: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot of this id, if it is this client's; used now.
    pub fn touch(&self, id: &str, principal: &Principal) -> Result<Snapshot, Failure> {
        let now = Instant::now();
        let mut held = self.lock();
        let found = held.get_mut(id).filter(|held| held.owner == principal.name());
        let found = found.filter(|held| now < held.until).ok_or_else(not_found)?;
        found.until = now + self.time;
        Ok(found.snapshot.clone())
    }

    fn hold(&self, id: String, held: Held) -> Result<(), Failure> {
        let mut all = self.lock();
        if all.len() >= self.count_max {
            return Err(Failure::busy());
        }
        all.insert(id, held);
        Ok(())
    }

    fn remove(&self, id: &str, principal: &Principal) -> Result<Snapshot, Failure> {
        let mut held = self.lock();
        if held.get(id).is_none_or(|held| held.owner != principal.name()) {
            return Err(not_found());
        }
        held.remove(id).map(|held| held.snapshot).ok_or_else(not_found)
    }

    /// Those that were not used for their time. Dropping them may remove files.
    pub fn take_expired(&self) -> Vec<Snapshot> {
        let now = Instant::now();
        let mut held = self.lock();
        held.extract_if(|_, held| now >= held.until).map(|(_, held)| held.snapshot).collect()
    }

    /// All of them, when the server ends.
    pub fn take_all(&self) -> Vec<Snapshot> {
        self.lock().drain().map(|(_, held)| held.snapshot).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

fn not_found() -> Failure {
    Failure::new(Code::SnapshotNotFound, "there is no such snapshot, or it has expired")
}

fn shown(ask: &Ask, id: &str, snapshot: &Snapshot) -> Value {
    let time = ask.shared.http.snapshots.time;
    let expires = SystemClock::new().wall_millis() + time.as_millis() as u64;
    json!({
        "id": id,
        "stamp": stamp_json(snapshot.seqno()),
        "time": time_text(snapshot.time()),
        "expires": millis_text(expires),
        "seconds": time.as_secs_f64(),
    })
}

/// `POST /v1/snapshots`
pub fn take(ask: &mut Ask) -> Outcome {
    let mut id = [0; ID_LEN];
    let no_randomness = |_| Failure::new(Code::Internal, "the system gives no random bytes");
    getrandom::fill(&mut id).map_err(no_randomness)?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let snapshots = &ask.shared.http.snapshots;
    let snapshot = ask.shared.store.db().snapshot();
    let owner = ask.principal.name().to_owned();
    let until = Instant::now() + snapshots.time;
    snapshots.hold(id.clone(), Held { snapshot: snapshot.clone(), owner, until })?;
    Ok(json_answer(StatusCode::CREATED, &shown(ask, &id, &snapshot)))
}

/// `GET /v1/snapshots/{id}`
pub fn show(ask: &mut Ask) -> Outcome {
    let id = ask.name(0).ok_or_else(not_found)?;
    let snapshot = ask.shared.http.snapshots.touch(id, &ask.principal)?;
    ok_json(&shown(ask, id, &snapshot))
}

/// `DELETE /v1/snapshots/{id}`
pub async fn release(ask: &mut Ask) -> Outcome {
    let id = ask.name(0).ok_or_else(not_found)?.to_owned();
    let snapshot = ask.shared.http.snapshots.remove(&id, &ask.principal)?;
    // Files that only it has kept are removed with it.
    let _when_it_is_done = tokio::task::spawn_blocking(move || drop(snapshot)).await;
    ok_json(&json!({ "dropped": id }))
}
