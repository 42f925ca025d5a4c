//! Conditions of HTTP on what an entry is: its stamp is its tag.

use hyper::header::{HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use lithedb::{Error, KeyRange, Keyspace, SeqNo, Transaction};

use super::ask::{Ask, LARGE_WRITE};
use super::failure::{Code, Failure};
use crate::config::Durability;
use crate::store::StoreError;

/// How often a write with a condition is tried when others write to the key.
const TRIES: u32 = 32;

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

/// Writes in a transaction that first looks whether it may: again, when others were faster.
pub async fn write_if(
    ask: &Ask,
    durability: Option<Durability>,
    effort: Effort,
    mut prepare: impl FnMut(&mut Transaction) -> Result<(), Failure>,
) -> Result<SeqNo, Failure> {
    let store = &ask.shared.store;
    for _ in 0..TRIES {
        let mut transaction = store.db().begin_update();
        match effort {
            Effort::Small => prepare(&mut transaction)?,
            Effort::Large => tokio::task::block_in_place(|| prepare(&mut transaction))?,
        }
        match store.commit(&mut transaction, durability).await {
            Err(StoreError::Engine(Error::Conflict)) => tokio::task::yield_now().await,
            done => return done.map_err(|error| ask.store(&error)),
        }
    }
    Err(Failure::new(Code::Conflict, "others write to the same keys all the time"))
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
