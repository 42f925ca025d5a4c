//! Moments that clients hold: each for the client that took it, for a time from its last use on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use lithedb::Snapshot;
use lithedb::base::{Clock as _, SystemClock};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::{Ask, Outcome, json_answer, ok_json};
use super::failure::{Code, Failure};
use super::moment::stamp_json;
use crate::auth::Principal;
use crate::config::Limits;
use crate::moment::{millis_text, time_text};

const ID_LEN: usize = 16;
/// The shortest time that a snapshot may be held for.
pub const SECONDS_MIN: f64 = 0.001;

/// How long it is to be held, from its last use on: the server's time if that is not said.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeBody {
    seconds: Option<f64>,
}

/// Those that are held.
#[derive(Debug)]
pub struct Snapshots {
    count_max: usize,
    /// Of these, of one client where there are tokens; others are all of this machine.
    per_token: usize,
    time_max: Duration,
    held: Mutex<HashMap<String, Held>>,
}

/// How clients are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    ByToken,
    /// They are not: whoever can connect is on this machine.
    Anybody,
}

#[derive(Debug)]
struct Held {
    snapshot: Snapshot,
    owner: String,
    time: Duration,
    until: Instant,
}

impl Snapshots {
    pub fn new(limits: &Limits, clients: Clients) -> Snapshots {
        let (count_max, time_max) = (limits.snapshots, limits.snapshot_time);
        let per_token = match clients {
            Clients::ByToken => limits.snapshots_per_token,
            Clients::Anybody => count_max,
        };
        Snapshots { count_max, per_token, time_max, held: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot of this id, if it is this client's; used now.
    pub fn touch(&self, id: &str, principal: &Principal) -> Result<Snapshot, Failure> {
        self.used(id, principal).map(|(snapshot, _)| snapshot)
    }

    /// The same, with the time that it is held for from now on.
    fn used(&self, id: &str, principal: &Principal) -> Result<(Snapshot, Duration), Failure> {
        let now = Instant::now();
        let mut held = self.lock();
        let found = held.get_mut(id).filter(|held| held.owner == principal.name());
        let found = found.filter(|held| now < held.until).ok_or_else(not_found)?;
        found.until = now + found.time;
        Ok((found.snapshot.clone(), found.time))
    }

    fn hold(&self, id: String, held: Held) -> Result<(), Failure> {
        let mut all = self.lock();
        if all.len() >= self.count_max {
            return Err(too_many("snapshots are held by all clients", self.count_max));
        }
        let own = all.values().filter(|other| other.owner == held.owner).count();
        if own >= self.per_token {
            return Err(too_many("snapshots are held with this token", self.per_token));
        }
        all.insert(id, held);
        Ok(())
    }

    /// The time that a client asks for.
    fn time_of(&self, seconds: Option<f64>) -> Result<Duration, Failure> {
        let Some(seconds) = seconds else { return Ok(self.time_max) };
        let time = Duration::try_from_secs_f64(seconds).ok();
        let time = time.filter(|time| seconds >= SECONDS_MIN && *time <= self.time_max);
        time.ok_or_else(|| {
            let most = self.time_max.as_secs_f64();
            let what = format!("seconds: a number from {SECONDS_MIN} to {most}");
            Failure::new(Code::InvalidArgument, what).with("limit", most)
        })
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

/// The limit is reached: some of them have to go first.
fn too_many(what: &str, limit: usize) -> Failure {
    let what = format!("{limit} {what}, and no more may be: drop some, or wait until they expire");
    Failure::new(Code::Busy, what)
        .with("limit", limit)
        .header(RETRY_AFTER, HeaderValue::from_static("1"))
}

fn shown(id: &str, snapshot: &Snapshot, time: Duration) -> Value {
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
pub async fn take(ask: &mut Ask) -> Outcome {
    let TakeBody { seconds } = ask.json_or_default().await?;
    let snapshots = &ask.shared.http.snapshots;
    let time = snapshots.time_of(seconds)?;
    let mut id = [0; ID_LEN];
    let no_randomness = |_| Failure::new(Code::Internal, "the system gives no random bytes");
    getrandom::fill(&mut id).map_err(no_randomness)?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let snapshot = ask.shared.store.db().snapshot();
    let owner = ask.principal.name().to_owned();
    let until = Instant::now() + time;
    snapshots.hold(id.clone(), Held { snapshot: snapshot.clone(), owner, time, until })?;
    Ok(json_answer(StatusCode::CREATED, &shown(&id, &snapshot, time)))
}

/// `GET /v1/snapshots/{id}`
pub fn show(ask: &mut Ask) -> Outcome {
    let id = ask.name(0).ok_or_else(not_found)?;
    let (snapshot, time) = ask.shared.http.snapshots.used(id, &ask.principal)?;
    ok_json(&shown(id, &snapshot, time))
}

/// `DELETE /v1/snapshots/{id}`
pub async fn release(ask: &mut Ask) -> Outcome {
    let id = ask.name(0).ok_or_else(not_found)?.to_owned();
    let snapshot = ask.shared.http.snapshots.remove(&id, &ask.principal)?;
    // Files that only it has kept are removed with it.
    let _when_it_is_done = tokio::task::spawn_blocking(move || drop(snapshot)).await;
    ok_json(&json!({ "dropped": id }))
}
