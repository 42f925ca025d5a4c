//! Writes that are done once, however often they are sent: the header `Idempotency-Key`
//! (`draft-ietf-httpapi-idempotency-key-header`).
//!
//! Who gets no answer does not know whether a write was done. It sends the same request with the
//! same key again, and is answered with what came of the first. The key is written by the commit
//! that does the write, so that there is no crash after which there is one without the other; its
//! entry has that commit's stamp, which is all that the answer needs.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::http::request::Parts;
use lithedb::{Error, Keyspace, KeyspaceOptions, SeqNo, Transaction};
use sha2::{Digest, Sha256};

use super::failure::{Code, Failure};
use super::routes::Operation;
use crate::auth::Principal;
use crate::store::Store;

/// The header that has the key.
pub const HEADER: &str = "idempotency-key";
/// Said of an answer to a write that was done before.
pub const REPLAYED_HEADER: &str = "idempotency-replayed";
/// The keyspace that keys are kept in. Made when there is a first.
pub const KEYSPACE: &str = "lithe.idempotency-keys";
/// Whoever asks for less has it remembered for so long: nothing expires in no time.
const KEPT_FOR_MIN: Duration = Duration::from_millis(1);
/// A key has at most so many bytes.
const KEY_LEN_MAX: usize = 255;

/// What the key of a request says: whose it is, and what it was said of.
#[derive(Debug)]
pub struct Once {
    key: [u8; 32],
    /// The request, as far as it has come.
    request: Sha256,
}

/// Whether a call takes a key: it writes, by one commit, which can be a transaction's. (That of
/// `restore` is the engine's own, and the plain calls are BedrockDB's to the letter.)
pub fn is_for(operation: Operation) -> bool {
    use Operation as Op;
    matches!(
        operation,
        Op::PutKey | Op::DeleteKey | Op::MergeKey | Op::DeleteRange | Op::ClearKeyspace | Op::Batch
    )
}

impl Once {
    /// Of a request, if it has a key. Keys of another name of a token are others.
    pub fn of(principal: &Principal, parts: &Parts) -> Result<Option<Once>, Failure> {
        let Some(key) = key_in(&parts.headers)? else { return Ok(None) };
        let mut owner = Sha256::new();
        add(&mut owner, principal.name().as_bytes());
        add(&mut owner, key);
        let mut request = Sha256::new();
        add(&mut request, parts.method.as_str().as_bytes());
        add(&mut request, parts.uri.path().as_bytes());
        add(&mut request, parts.uri.query().unwrap_or_default().as_bytes());
        for name in [IF_MATCH, IF_NONE_MATCH] {
            let values = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
            add(&mut request, &values.collect::<Vec<_>>().join(&b',')[..]);
        }
        Ok(Some(Once { key: owner.finalize().into(), request }))
    }

    /// With the body of the request.
    pub fn add_body(&mut self, body: &[u8]) {
        add(&mut self.request, body);
    }

    /// What is looked for and put in the keyspace of keys, if that is there.
    ///
    /// # Errors
    /// The engine's: `KeyspaceNotFound` when there is none, [`make_keyspace`] makes it.
    pub fn mark(&self, store: &Store, kept_for: Duration) -> Result<Mark, Error> {
        let request: [u8; 32] = self.request.clone().finalize().into();
        let keyspace = store.keyspace(KEYSPACE)?;
        Ok(Mark { keyspace, key: self.key, request, kept_for: kept_for.max(KEPT_FOR_MIN) })
    }
}

/// With its length, so that no two lists of parts are the same bytes.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// Makes the keyspace of keys; it may be there. On return it is durable.
pub fn make_keyspace(store: &Store) -> Result<(), Error> {
    // Written once and gone after a while: what a log-structured tree is for.
    match store.db().create_keyspace(KEYSPACE, KeyspaceOptions::lsm()) {
        Err(Error::KeyspaceExists { .. }) => Ok(()),
        made => made.map(drop),
    }
}

fn key_in(headers: &HeaderMap) -> Result<Option<&[u8]>, Failure> {
    let mut given = headers.get_all(HEADER).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let wrong = |what: &str| Failure::new(Code::BadRequest, format!("{HEADER}: {what}"));
    if given.next().is_some() {
        return Err(wrong("it is there more than once"));
    }
    let value = value.as_bytes().trim_ascii();
    // A string in quotes, by the draft; as it is, by most who send it.
    let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let key = inner.unwrap_or(value);
    let first = if inner.is_some() { b' ' } else { b'!' };
    let is_plain = |byte: &u8| (first..=b'~').contains(byte) && !matches!(byte, b'"' | b'\\');
    if key.is_empty() || key.len() > KEY_LEN_MAX || !key.iter().all(is_plain) {
        return Err(wrong("1 to 255 characters of ASCII without quotes; with spaces, in quotes"));
    }
    Ok(Some(key))
}

/// What a key says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was not said before.
    Nothing,
    /// The commit that has done the request already.
    Done(SeqNo),
    /// It was said of another request.
    OfAnother,
}

/// A key as it is kept: by whose it is, with the request that it was said of.
#[derive(Debug)]
pub struct Mark {
    keyspace: Keyspace,
    key: [u8; 32],
    request: [u8; 32],
    kept_for: Duration,
}

impl Mark {
    /// What is known of it, as a transaction sees it.
    ///
    /// # Errors
    /// The engine's.
    pub fn find(&self, transaction: &Transaction) -> Result<Found, Error> {
        Ok(match transaction.get_entry(&self.keyspace, self.key)? {
            None => Found::Nothing,
            Some(entry) if *entry.value == self.request => Found::Done(entry.seqno),
            Some(_) => Found::OfAnother,
        })
    }

    /// Has the commit say that it has done the request.
    pub fn add_to(&self, transaction: &mut Transaction) -> Result<(), Error> {
        transaction.put_with_ttl(&self.keyspace, self.key, self.request, self.kept_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &'static [u8]) -> Option<Vec<u8>> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        key_in(&headers).ok().flatten().map(<[u8]>::to_vec)
    }

    #[test]
    fn keys_are_strings_with_or_without_quotes() {
        assert_eq!(key_in(&HeaderMap::new()).unwrap(), None);
        let known = b"8e03978e-40d5-43e8-bc93-6894a57f9324";
        assert_eq!(key(known).unwrap(), known);
        assert_eq!(key(b"\"8e03978e-40d5-43e8-bc93-6894a57f9324\"").unwrap(), known);
        assert_eq!(key(b" \"a b\" ").unwrap(), b"a b");
        for wrong in [&b""[..], b"a b", b"\"\"", b"\"a", b"a\"b", b"a\\b", "\u{e4}".as_bytes()] {
            assert_eq!(key(wrong), None, "{wrong:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(&"k".repeat(KEY_LEN_MAX)).unwrap());
        assert!(key_in(&headers).is_ok());
        headers.append(HEADER, HeaderValue::from_static("other"));
        assert!(key_in(&headers).is_err());
        headers.clear();
        headers.insert(HEADER, HeaderValue::from_str(&"k".repeat(KEY_LEN_MAX + 1)).unwrap());
        assert!(key_in(&headers).is_err());
    }
}
