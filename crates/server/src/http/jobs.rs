//! Work that takes long: begun by a call, looked at and ended by others. There are few at a time,
//! and those that are over are remembered for a while.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::StatusCode;
use lithedb::base::{Clock as _, SystemClock};
use lithedb::{CheckOptions, Error};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::ask::{Ask, Outcome, json_answer, ok_json};
use super::failure::{Code, Failure};
use crate::auth::{Principal, Verb};
use crate::moment::millis_text;
use crate::server::{Phase, Shared};
use crate::store::Store;

/// Jobs at work at a time.
const RUNNING_MAX: usize = 4;
/// Jobs that are remembered, with those at work.
const KEPT_MAX: usize = 100;
/// A total that is not known.
const UNKNOWN: u64 = u64::MAX;
/// Problems of a report that are told.
const PROBLEMS_MAX: usize = 100;

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    state: Mutex<Register>,
}

#[derive(Debug, Default)]
struct Register {
    last_id: u64,
    jobs: BTreeMap<u64, Arc<Job>>,
}

/// Who may see a job, and end it: who could begin it.
#[derive(Clone, Debug)]
pub enum Needs {
    All(Verb),
    Keyspace(Verb, String),
}

impl Needs {
    fn allow(&self, principal: &Principal) -> bool {
        match self {
            Needs::All(verb) => principal.may_with_all(*verb),
            Needs::Keyspace(verb, keyspace) => principal.may(*verb, keyspace),
        }
    }
}

/// A job that is to begin.
#[derive(Debug)]
pub struct NewJob {
    pub kind: &'static str,
    pub needs: Needs,
    /// What it is about: a member, and what that says.
    pub about: (&'static str, Value),
    /// What its progress counts.
    pub unit: &'static str,
}

/// A job.
#[derive(Debug)]
pub struct Job {
    id: u64,
    new: NewJob,
    /// Not the server itself, which has its jobs.
    phase: watch::Receiver<Phase>,
    began: u64,
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
    /// Whether it was told not to go on, and so has not come to its end.
    is_broken_off: AtomicBool,
    end: Mutex<Option<End>>,
}

#[derive(Debug)]
struct End {
    state: &'static str,
    time: u64,
    /// What came of it, or why nothing did.
    said: (&'static str, Value),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// So much is done; the answer says whether to go on.
    pub fn note(&self, done: u64, total: Option<u64>) -> ControlFlow<()> {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total.unwrap_or(UNKNOWN), Ordering::Relaxed);
        match self.is_to_end() {
            true => {
                self.is_broken_off.store(true, Ordering::Relaxed);
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        }
    }

    fn is_to_end(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || *self.phase.borrow() != Phase::Serving
    }

    fn is_over(&self) -> bool {
        lock(&self.end).is_some()
    }

    fn finish(&self, outcome: Result<Value, Error>, principal: &Principal, store: &Store) {
        let time = SystemClock::new().wall_millis();
        let (state, said) = match outcome {
            _ if self.is_broken_off.load(Ordering::Relaxed) => {
                let what = json!({ "code": "cancelled", "message": "it was ended" });
                ("cancelled", ("error", what))
            }
            // What was looked for was found.
            Ok(report) if report["ok"] == false => ("failed", ("result", report)),
            Ok(report) => ("done", ("result", report)),
            Err(error) => {
                let failure = Failure::of_engine(&error, principal, store);
                ("failed", ("error", failure.to_json()["error"].take()))
            }
        };
        *lock(&self.end) = Some(End { state, time, said });
    }

    fn to_json(&self) -> Value {
        let end = lock(&self.end);
        let total = Some(self.total.load(Ordering::Relaxed)).filter(|total| *total != UNKNOWN);
        let state = match &*end {
            Some(end) => end.state,
            None if self.is_to_end() => "cancelling",
            None => "running",
        };
        let mut shown = Map::new();
        let mut add = |name: &str, value: Value| drop(shown.insert(name.to_owned(), value));
        add("id", self.id.to_string().into());
        add("kind", self.new.kind.into());
        let (name, about) = &self.new.about;
        if !about.is_null() {
            add(name, about.clone());
        }
        add("state", state.into());
        let done = self.done.load(Ordering::Relaxed);
        add("progress", json!({ "done": done, "total": total, "unit": self.new.unit }));
        add("began", millis_text(self.began).into());
        add("ended", end.as_ref().map_or(Value::Null, |end| millis_text(end.time).into()));
        if let Some(End { said: (name, value), .. }) = &*end {
            add(name, value.clone());
            if let Some(message) = value.get("message") {
                add("message", message.clone());
            }
        }
        Value::Object(shown)
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Register> {
        lock(&self.state)
    }

    /// How many are at work.
    pub fn running(&self) -> usize {
        self.lock().jobs.values().filter(|job| !job.is_over()).count()
    }

    fn add(&self, phase: &watch::Receiver<Phase>, new: NewJob) -> Result<Arc<Job>, Failure> {
        let mut register = self.lock();
        let running = register.jobs.values().filter(|job| !job.is_over()).count();
        if running >= RUNNING_MAX {
            return Err(Failure::busy());
        }
        while register.jobs.len() >= KEPT_MAX {
            let oldest = register.jobs.values().find(|job| job.is_over()).map(|job| job.id);
            let Some(oldest) = oldest else { return Err(Failure::busy()) };
            register.jobs.remove(&oldest);
        }
        register.last_id += 1;
        let job = Arc::new(Job {
            id: register.last_id,
            new,
            phase: phase.clone(),
            began: SystemClock::new().wall_millis(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
            is_cancelled: AtomicBool::new(false),
            is_broken_off: AtomicBool::new(false),
            end: Mutex::default(),
        });
        register.jobs.insert(job.id, Arc::clone(&job));
        Ok(job)
    }

    fn remove(&self, id: u64) {
        self.lock().jobs.remove(&id);
    }
}

/// Begins a job, and answers with it.
pub fn begin(
    ask: &Ask,
    new: NewJob,
    work: impl FnOnce(&Job, &Shared) -> Result<Value, Error> + Send + 'static,
) -> Outcome {
    let (shared, principal) = (Arc::clone(&ask.shared), ask.principal.clone());
    let job = ask.shared.http.jobs.add(&shared.phase, new)?;
    let at_work = Arc::clone(&job);
    let begun = ask.shared.store.begin(move |_| {
        let mut end =
            Ending { job: &at_work, for_whom: (&principal, &shared.store), outcome: None };
        end.outcome = Some(work(&at_work, &shared));
    });
    if let Err(error) = begun {
        ask.shared.http.jobs.remove(job.id);
        return Err(ask.store(&error));
    }
    Ok(json_answer(StatusCode::ACCEPTED, &json!({ "job": job.to_json() })))
}

/// Sees to it that a job ends, also if what it does panics.
struct Ending<'j> {
    job: &'j Job,
    for_whom: (&'j Principal, &'j Store),
    outcome: Option<Result<Value, Error>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::invalid("the server could not do it"));
        let (principal, store) = self.for_whom;
        self.job.finish(self.outcome.take().unwrap_or_else(panicked), principal, store);
    }
}

/// `GET /v1/jobs`: the newest first.
pub fn list(ask: &mut Ask) -> Outcome {
    let jobs: Vec<Arc<Job>> = ask.shared.http.jobs.lock().jobs.values().rev().cloned().collect();
    let seen = jobs.iter().filter(|job| job.new.needs.allow(&ask.principal));
    ok_json(&json!({ "jobs": seen.map(|job| job.to_json()).collect::<Vec<_>>() }))
}

fn find(ask: &Ask) -> Result<Arc<Job>, Failure> {
    let id = ask.name(0).and_then(|id| id.parse().ok());
    let found = id.and_then(|id: u64| ask.shared.http.jobs.lock().jobs.get(&id).cloned());
    let found = found.filter(|job| job.new.needs.allow(&ask.principal));
    found.ok_or_else(|| Failure::new(Code::JobNotFound, "there is no such job, or not any more"))
}

/// `GET /v1/jobs/{id}`
pub fn show(ask: &mut Ask) -> Outcome {
    ok_json(&json!({ "job": find(ask)?.to_json() }))
}

/// `DELETE /v1/jobs/{id}`
pub fn cancel(ask: &mut Ask) -> Outcome {
    let job = find(ask)?;
    if !job.is_over() {
        job.is_cancelled.store(true, Ordering::Relaxed);
    }
    ok_json(&json!({ "job": job.to_json() }))
}

/// `POST /v1/check`
pub fn check(ask: &mut Ask) -> Outcome {
    let new = NewJob {
        kind: "check",
        needs: Needs::All(Verb::Admin),
        about: ("name", Value::Null),
        unit: "bytes",
    };
    begin(ask, new, move |job, shared| {
        let db = shared.store.db();
        let total = db.stats().bytes_on_disk();
        let report = db.check_with(&CheckOptions::new(), |progress| {
            job.note(progress.bytes, Some(total.max(progress.bytes)))
        })?;
        Ok(problems_json(
            &report.problems,
            json!({
                "ok": report.is_ok(),
                "files": report.files,
                "bytes": report.bytes,
                "keyspaces": report.keyspaces,
                "entries": report.entries,
                "values": report.values,
                "commits": report.commits,
                "unchecked": report.unchecked,
                "orphans": report.orphans.len(),
            }),
        ))
    })
}

/// A report with what is wrong, and a sentence that says how much.
pub fn problems_json(problems: &[String], mut report: Value) -> Value {
    let told: Vec<&String> = problems.iter().take(PROBLEMS_MAX).collect();
    report["problems"] = json!(told);
    report["message"] = match problems {
        [] => "nothing is wrong".into(),
        [only] => only.as_str().into(),
        [first, ..] => format!("{} problems; the first: {first}", problems.len()).into(),
    };
    report
}
