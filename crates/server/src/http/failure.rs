//! Why something was not done: a status and a code that stays, and a sentence for people. Nothing
//! of another client's keys or values is in it (N4).

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use lithedb::{Error, HealthState};
use serde_json::{Map, Value, json};

use crate::auth::{Principal, Verb};
use crate::metrics::Refusal;
use crate::room::NoRoom;
use crate::store::{Store, StoreError};
use crate::sync::NotSynced;

macro_rules! codes {
    ($($name:ident $text:literal $status:literal $meaning:literal,)*) => {
        /// What programs tell failures apart by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $meaning] $name,)*
        }

        impl Code {
            /// All of them, with their names, their statuses, and what they mean.
            pub const ALL: &[(Code, &'static str, u16, &'static str)] =
                &[$((Code::$name, $text, $status, $meaning),)*];
        }
    };
}

codes! {
    BadRequest "bad_request" 400 "The request is not what HTTP or this call allows.",
    BadParameter "bad_parameter" 400 "A parameter is not known, or not what it may be.",
    InvalidJson "invalid_json" 400 "The body is no JSON, or not the JSON of this call.",
    InvalidArgument "invalid_argument" 400 "The engine refuses it.",
    ConfirmationNeeded "confirmation_needed" 400 "Everything would be lost: say that it is meant.",
    Unauthenticated "unauthenticated" 401 "There is no token, or a wrong one.",
    Forbidden "forbidden" 403 "The token does not allow it.",
    OriginRefused "origin_refused" 403 "A page of another site has sent it.",
    OpenedReadOnly "opened_read_only" 403 "The database was opened to be read.",
    NotFound "not_found" 404 "There is nothing at this address.",
    KeyNotFound "key_not_found" 404 "The key is not there.",
    KeyspaceNotFound "keyspace_not_found" 404 "The keyspace is not there.",
    SnapshotNotFound "snapshot_not_found" 404 "The snapshot is not there, or has expired.",
    JobNotFound "job_not_found" 404 "The job is not there, or was forgotten.",
    BackupNotFound "backup_not_found" 404 "The backup is not there.",
    NoBackups "no_backups" 404 "The server was given no place for backups.",
    MethodNotAllowed "method_not_allowed" 405 "The address does not have this method.",
    Slow "request_timeout" 408 "The request did not come in time.",
    Conflict "conflict" 409 "A condition does not hold.",
    KeyspaceExists "keyspace_exists" 409 "There is a keyspace of this name.",
    NameTaken "name_taken" 409 "There is a backup or a database of this name.",
    NotKept "not_kept" 410 "It is not kept any more.",
    PreconditionFailed "precondition_failed" 412 "The entry is another one.",
    TooLarge "too_large" 413 "It is larger than it may be.",
    UnsupportedMediaType "unsupported_media_type" 415 "The call has another content type.",
    ExpectationFailed "expectation_failed" 417 "What is expected of the server is not known.",
    Misdirected "misdirected" 421 "The server is not known by this host's name.",
    NotText "not_text" 422 "It is no UTF-8: the calls at /v1 have it.",
    NoHistory "no_history" 422 "The keyspace keeps no versions.",
    MergeRefused "merge_refused" 422 "The merge operator is missing, or refuses.",
    IndexRefused "index_refused" 422 "An index of the keyspace refuses it.",
    KeyReused "idempotency_key_reused" 422 "The key was said of another request.",
    TooOften "too_many_wrong_tokens" 429 "There were too many wrong tokens.",
    Internal "internal" 500 "The server could not do it.",
    Corruption "corruption" 500 "Bytes on disk are not what was written.",
    DurabilityUnknown "durability_unknown" 500 "It may be there after a restart.",
    Busy "busy" 503 "There is too much to do: try again.",
    ReadOnly "read_only" 503 "Nothing is written after a failure.",
    Closing "closing" 503 "The server ends.",
    DiskFull "disk_full" 507 "There is no room on the disk.",
}

impl Code {
    /// Its name, as answers have it.
    pub fn name(self) -> &'static str {
        Code::ALL[self as usize].1
    }

    /// The status of answers that have it.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(Code::ALL[self as usize].2).unwrap_or(StatusCode::IM_A_TEAPOT)
    }

    /// What it is counted as.
    pub fn refusal(self) -> Option<Refusal> {
        Some(match self {
            Code::BadRequest | Code::InvalidJson | Code::ExpectationFailed => Refusal::Malformed,
            Code::Unauthenticated | Code::TooOften => Refusal::Unknown,
            Code::Forbidden | Code::OriginRefused | Code::Misdirected => Refusal::Forbidden,
            Code::TooLarge => Refusal::Size,
            Code::Slow => Refusal::Slow,
            Code::Busy => Refusal::Busy,
            _ => return None,
        })
    }
}

/// Why a request was not done.
#[derive(Debug)]
pub struct Failure(Box<Parts>);

#[derive(Debug)]
struct Parts {
    code: Code,
    message: String,
    detail: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure(Box::new(Parts { code, message, detail: Map::new(), headers: Vec::new() }))
    }

    /// With something for programs.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Failure {
        self.0.detail.insert(name.to_owned(), value.into());
        self
    }

    /// With a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Failure {
        self.0.headers.push((name, value));
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0.headers
    }

    /// `{"error":{"code":..,"message":..,..}}`
    pub fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), self.0.code.name().into());
        error.insert("message".to_owned(), self.0.message.as_str().into());
        error.extend(self.0.detail.clone());
        json!({ "error": error })
    }

    pub fn keyspace_not_found() -> Failure {
        Failure::new(Code::KeyspaceNotFound, "there is no such keyspace")
    }

    pub fn bad_parameter(name: &str, what: &str) -> Failure {
        Failure::new(Code::BadParameter, format!("{name}: {what}")).with("parameter", name)
    }

    pub fn too_large(what: &str, limit: u64) -> Failure {
        let message = format!("{what}: at most {limit} are allowed");
        Failure::new(Code::TooLarge, message).with("limit", limit)
    }

    pub fn busy() -> Failure {
        Failure::new(Code::Busy, "there is too much to do at the moment")
            .header(hyper::header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// What came of something that the store was asked for, as this principal may be told.
    pub fn of_store(error: &StoreError, principal: &Principal, store: &Store) -> Failure {
        match error {
            StoreError::Engine(error) => Failure::of_engine(error, principal, store),
            StoreError::Unknown(why) if principal.may_with_all(Verb::Admin) => {
                Failure::new(Code::DurabilityUnknown, format!("it may not be durable: {why}"))
            }
            StoreError::Unknown(_) => {
                Failure::new(Code::DurabilityUnknown, "whether this is durable is not known")
            }
            StoreError::Busy => Failure::busy(),
            StoreError::Panicked => Failure::new(Code::Internal, "the server could not do it"),
        }
    }

    /// The same of what the engine says. Paths of files are told to who may do everything.
    pub fn of_engine(error: &Error, principal: &Principal, store: &Store) -> Failure {
        let is_admin = principal.may_with_all(Verb::Admin);
        let (code, plain) = code_of(error, store);
        let says_paths = matches!(
            error,
            Error::Corruption { .. }
                | Error::FormatVersion { .. }
                | Error::Io { .. }
                | Error::DiskFull { .. }
                | Error::Locked { .. }
                | Error::ReadOnly { .. }
        );
        let message = match says_paths && !is_admin || code == Code::KeyspaceNotFound {
            true => plain.to_owned(),
            false => error.to_string(),
        };
        let mut failure = Failure::new(code, message);
        match error {
            Error::Corruption { file, offset, .. } if is_admin => {
                failure = failure.with("file", file.display().to_string()).with("offset", *offset);
            }
            Error::BeyondRetention { kept_from: Some(kept_from), .. } => {
                failure = failure.with("kept_from", kept_from.as_u64().to_string());
            }
            Error::CommitsNotKept { oldest: Some(oldest) } => {
                failure = failure.with("oldest", oldest.as_u64().to_string());
            }
            _ => {}
        }
        if code == Code::DiskFull {
            failure = failure.header(hyper::header::RETRY_AFTER, HeaderValue::from_static("10"));
        }
        failure
    }

    pub fn of_sync(error: NotSynced, principal: &Principal, store: &Store) -> Failure {
        Failure::of_store(&StoreError::from(error), principal, store)
    }
}

impl From<NoRoom> for Failure {
    fn from(no_room: NoRoom) -> Failure {
        match no_room {
            NoRoom::Now => Failure::busy(),
            NoRoom::Ever(limit) => Failure::too_large("bytes that are sent at a time", limit),
        }
    }
}

/// The code of an error, and what is said of it to who may not be told of files.
fn code_of(error: &Error, store: &Store) -> (Code, &'static str) {
    match error {
        Error::InvalidArgument { .. } => (Code::InvalidArgument, "the engine refuses it"),
        Error::Conflict | Error::TransactionEnded => (Code::Conflict, "others write to it"),
        Error::DiskFull { .. } => (Code::DiskFull, "there is no room on the disk"),
        Error::ReadOnly { .. } if store.db().health().state == HealthState::OpenedForReading => {
            (Code::OpenedReadOnly, "the database was opened to be read")
        }
        Error::ReadOnly { .. } => (Code::ReadOnly, "nothing is written after a failure"),
        Error::KeyspaceNotFound { .. } => (Code::KeyspaceNotFound, "there is no such keyspace"),
        Error::KeyspaceExists { .. } => (Code::KeyspaceExists, "there is such a keyspace"),
        Error::MergeOperatorMissing { .. } | Error::MergeFailed { .. } => {
            (Code::MergeRefused, "it cannot be merged")
        }
        Error::IndexNotFound { .. }
        | Error::IndexExists { .. }
        | Error::IndexNotReady { .. }
        | Error::ExtractorMissing { .. }
        | Error::ExtractorFailed { .. }
        | Error::UniqueViolation { .. } => (Code::IndexRefused, "an index refuses it"),
        Error::CommitsNotKept { .. } | Error::BeyondRetention { .. } => {
            (Code::NotKept, "it is not kept any more")
        }
        Error::Corruption { .. } | Error::FormatVersion { .. } => {
            (Code::Corruption, "what is on the disk is damaged")
        }
        Error::Closed => (Code::Closing, "the database is closed"),
        Error::Locked { .. } => (Code::Busy, "somebody else is at it"),
        _ => (Code::Internal, "the disk does not do what it should"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_names_that_are_there_once_and_statuses_of_failures() {
        for (index, (code, name, status, meaning)) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, index);
            assert_eq!((code.name(), code.status().as_u16()), (*name, *status));
            assert!((400..600).contains(status) && meaning.ends_with('.'), "{name}");
            assert_eq!(Code::ALL.iter().filter(|other| other.1 == *name).count(), 1);
        }
    }
}
