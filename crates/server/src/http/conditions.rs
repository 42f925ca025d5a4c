//! Conditions of HTTP on what an entry is: its stamp is its tag.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use lithedb::{Error, KeyRange, Keyspace, SeqNo, Transaction};

use super::ask::{Ask, LARGE_WRITE};
use super::failure::{Code, Failure};
use super::once::{self, Found};
use crate::config::Durability;

/// How often a write with a condition is tried when others write to the key.
const TRIES: u32 = 32;
/// The same of one that is to be done once.
const TRIES_ONCE: u32 = 1000;
/// So often it is tried at once; then it is waited in between.
const AT_ONCE: u32 = 8;
const BACK_OFF: Duration = Duration::from_millis(1);

#[derive(Debug)]
enum Tags {
    Any,
    /// Of tags that are no stamps, none is here.
    These(Vec<Tag>),
}

#[derive(Clone, Copy, Debug)]
struct Tag {
    stamp: SeqNo,
    is_weak: bool,
}

/// What a request asks of an entry.
#[derive(Debug, Default)]
pub struct Conditions {
    /// The entry is one of these.
    is: Option<Tags>,
    /// It is none of these.
    is_not: Option<Tags>,
}

impl Conditions {
    pub fn of(headers: &HeaderMap) -> Result<Conditions, Failure> {
        Ok(Conditions { is: tags(headers, &IF_MATCH)?, is_not: tags(headers, &IF_NONE_MATCH)? })
    }

    pub fn is_empty(&self) -> bool {
        self.is.is_none() && self.is_not.is_none()
    }

    /// Whether who asks has the entry already.
    pub fn is_known(&self, found: SeqNo) -> bool {
        self.is_not.as_ref().is_some_and(|tags| tags.have(Some(found)))
    }

    /// For who reads.
    pub fn check_is(&self, found: Option<SeqNo>) -> Result<(), Failure> {
        match self.is.as_ref().is_none_or(|tags| tags.have_strongly(found)) {
            true => Ok(()),
            false => Err(failed(found)),
        }
    }

    /// For who writes.
    pub fn check(&self, found: Option<SeqNo>) -> Result<(), Failure> {
        self.check_is(found)?;
        match self.is_not.as_ref().is_some_and(|tags| tags.have(found)) {
            true => Err(failed(found)),
            false => Ok(()),
        }
    }
}

fn failed(found: Option<SeqNo>) -> Failure {
    let stamp = found.map(|found| found.as_u64().to_string());
    Failure::new(Code::PreconditionFailed, "the entry is another one").with("stamp", stamp)
}

impl Tags {
    fn have(&self, found: Option<SeqNo>) -> bool {
        match self {
            Tags::Any => found.is_some(),
            Tags::These(tags) => tags.iter().any(|tag| Some(tag.stamp) == found),
        }
    }

    fn have_strongly(&self, found: Option<SeqNo>) -> bool {
        match self {
            Tags::Any => found.is_some(),
            Tags::These(tags) => tags.iter().any(|tag| !tag.is_weak && Some(tag.stamp) == found),
        }
    }
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Failure> {
    let mut tags: Vec<Tag> = Vec::new();
    let mut is_there = false;
    for value in headers.get_all(name) {
        is_there = true;
        let wrong = || Failure::new(Code::BadRequest, format!("{name}: tags in quotes, or *"));
        let value = value.to_str().map_err(|_| wrong())?.trim();
        if value == "*" {
            return Ok(Some(Tags::Any));
        }
        for text in value.split(',').map(str::trim) {
            let strong = text.strip_prefix("W/");
            let inner = strong.unwrap_or(text).strip_prefix('"');
            let inner = inner.and_then(|text| text.strip_suffix('"')).ok_or_else(wrong)?;
            // Tags are compared as they are written: `+7` and `07` are others than `7`.
            if let Some(number) = inner.parse().ok().filter(|n: &u64| n.to_string() == inner) {
                tags.push(Tag { stamp: SeqNo::from_u64(number), is_weak: strong.is_some() });
            }
        }
    }
    Ok(is_there.then_some(Tags::These(tags)))
}

/// The stamp of a key, as a transaction sees it; its value is not read.
pub fn stamp_in(
    transaction: &Transaction,
    keyspace: &Keyspace,
    key: &[u8],
) -> Result<Option<SeqNo>, Error> {
    let mut cursor = transaction.cursor(keyspace, KeyRange::new(&(key..=key)))?;
    cursor.seek_first()?;
    Ok(cursor.valid().then(|| cursor.seqno()))
}

/// Whether a write is done while others wait for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Small,
    Large,
}

impl Effort {
    /// Of a request with a body of so many bytes.
    pub fn of(bytes: usize) -> Effort {
        if bytes < LARGE_WRITE { Effort::Small } else { Effort::Large }
    }
}

/// A write that is done.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub stamp: SeqNo,
    /// It was done when the same request came before.
    pub is_replayed: bool,
}

impl From<SeqNo> for Written {
    fn from(stamp: SeqNo) -> Written {
        Written { stamp, is_replayed: false }
    }
}

/// Writes in a transaction that first looks whether it may: again, when others were faster. Not at
/// all, when the same request has been done already and says by a key that it is to be done once.
pub async fn write_if(
    ask: &Ask,
    durability: Option<Durability>,
    effort: Effort,
    mut prepare: impl FnMut(&mut Transaction) -> Result<(), Failure>,
) -> Result<Written, Failure> {
    let mut attempt = || attempt(ask, &mut prepare);
    for count in 0..tries(ask) {
        let tried = match effort {
            Effort::Small => attempt(),
            Effort::Large => ask.in_place(&mut attempt)?,
        };
        match tried? {
            Attempt::Done(done) => {
                // One that was done before may have been answered, or not, before it was durable.
                ask.settle(durability).await?;
                return Ok(done);
            }
            Attempt::NoKeyspace => ask.once_keyspace().await?,
            Attempt::Conflict if count < AT_ONCE => tokio::task::yield_now().await,
            Attempt::Conflict => tokio::time::sleep(BACK_OFF).await,
        }
    }
    match ask.once.is_some() {
        // The same request can be sent again.
        true => Err(Failure::busy()),
        false => Err(Failure::new(Code::Conflict, "others write to the same keys all the time")),
    }
}

/// How often it is tried. Who says that a write is to be done once did not say that it may fail
/// since others write to the same keys.
fn tries(ask: &Ask) -> u32 {
    if ask.once.is_some() { TRIES_ONCE } else { TRIES }
}

/// What came of trying a write.
enum Attempt {
    Done(Written),
    /// Others were faster.
    Conflict,
    /// There is no keyspace for keys of requests.
    NoKeyspace,
}

fn attempt(
    ask: &Ask,
    prepare: &mut impl FnMut(&mut Transaction) -> Result<(), Failure>,
) -> Result<Attempt, Failure> {
    let store = &ask.shared.store;
    let kept_for = ask.shared.limits.idempotency_time;
    let mark = ask.once.as_ref().map(|once| once.mark(store, kept_for)).transpose();
    let mut transaction = store.db().begin_update();
    let found = mark.and_then(|mark| {
        let found = mark.as_ref().map_or(Ok(Found::Nothing), |mark| mark.find(&transaction))?;
        Ok((mark, found))
    });
    let mark = match found {
        // It may be dropped at any moment, as any other.
        Err(Error::KeyspaceNotFound { .. }) => return Ok(Attempt::NoKeyspace),
        Err(error) => return Err(ask.engine(&error)),
        Ok((_, Found::Done(stamp))) => {
            return Ok(Attempt::Done(Written { stamp, is_replayed: true }));
        }
        Ok((_, Found::OfAnother)) => {
            let what = "the key was said of another request before";
            return Err(Failure::new(Code::KeyReused, what));
        }
        Ok((mark, Found::Nothing)) => mark,
    };
    prepare(&mut transaction)?;
    match mark.map_or(Ok(()), |mark| mark.add_to(&mut transaction)) {
        Err(Error::KeyspaceNotFound { .. }) => return Ok(Attempt::NoKeyspace),
        added => added.map_err(|error| ask.engine(&error))?,
    }
    match store.buffered(|| transaction.commit_with(lithedb::Durability::Buffered)) {
        Err(Error::Conflict) => Ok(Attempt::Conflict),
        Err(Error::KeyspaceNotFound { name }) if name == once::KEYSPACE => Ok(Attempt::NoKeyspace),
        done => done.map(|stamp| Attempt::Done(stamp.into())).map_err(|error| ask.engine(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(headers: &[(&str, &str)]) -> Result<Conditions, Failure> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
        Conditions::of(&headers.collect())
    }

    #[test]
    fn conditions_are_those_of_http() {
        let seven = Some(SeqNo::from_u64(7));
        for (header, value, absent, present) in [
            ("if-match", "\"7\"", false, true),
            ("if-match", "\"8\", \"7\"", false, true),
            ("if-match", "\"8\"", false, false),
            ("if-match", "\"other\"", false, false),
            ("if-match", "\"+7\"", false, false),
            ("if-match", "\"07\"", false, false),
            ("if-match", "W/\"7\"", false, false),
            ("if-match", "*", false, true),
            ("if-none-match", "*", true, false),
            ("if-none-match", "\"7\"", true, false),
            ("if-none-match", "W/\"7\"", true, false),
            ("if-none-match", "\"8\"", true, true),
        ] {
            let conditions = conditions(&[(header, value)]).unwrap();
            assert_eq!(conditions.check(None).is_ok(), absent, "{header}: {value}");
            assert_eq!(conditions.check(seven).is_ok(), present, "{header}: {value}");
        }
        assert!(conditions(&[]).unwrap().is_empty());
        for wrong in ["7", "\"7", "", "\"7\",", "W/7"] {
            assert!(conditions(&[("if-match", wrong)]).is_err(), "{wrong}");
        }
    }
}
