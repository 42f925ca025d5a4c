//! A request as handlers see it, and answers as they are made.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
};
use hyper::{Response, StatusCode};
use lithedb::{Error, Keyspace, SeqNo, WriteBatch};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::body::{Body, Received, check_announced, receive};
use super::failure::{Code, Failure};
use super::once::{KEYSPACE, Once, make_keyspace};
use super::query::Query;
use super::routes::Route;
use super::standing::Standing;
use super::text::base64_decoded;
use crate::auth::{Principal, Verb};
use crate::config::Durability;
use crate::server::Shared;
use crate::store::StoreError;

/// A JSON body of calls that write no values is at most so large.
const SMALL_BODY_MAX: u64 = 256 << 10;
/// Writes of more bytes are done on a thread of their own.
pub const LARGE_WRITE: usize = 256 << 10;

/// What a handler gives.
pub type Outcome = Result<Response<Body>, Failure>;

/// A request that is allowed so far.
#[derive(Debug)]
pub struct Ask {
    pub shared: Arc<Shared>,
    pub principal: Principal,
    pub route: &'static Route,
    /// What the address has where the route leaves it open.
    pub open: Vec<Vec<u8>>,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Incoming,
    /// That it is to be done once, of calls that can promise it.
    pub once: Option<Once>,
    /// The reading of the file of tokens by which it is allowed.
    pub tokens_read: u64,
    /// Whether the client was asked for the body, if it has waited for that.
    pub is_body_asked_for: bool,
    /// Bytes of the body that were read.
    pub received: u64,
}

impl Ask {
    /// An open part of the address that is text.
    pub fn name(&self, index: usize) -> Option<&str> {
        str::from_utf8(self.open.get(index)?).ok()
    }

    /// The keyspace of the address, if this may be done with it. Who may not is not told whether it
    /// is there.
    pub fn keyspace(&self, verb: Verb) -> Result<Keyspace, Failure> {
        let name = self.name(0).ok_or_else(Failure::keyspace_not_found)?;
        self.keyspace_named(verb, name)
    }

    pub fn keyspace_named(&self, verb: Verb, name: &str) -> Result<Keyspace, Failure> {
        self.require(verb, name)?;
        self.shared.store.keyspace(name).map_err(|error| self.engine(&error))
    }

    pub fn require(&self, verb: Verb, keyspace: &str) -> Result<(), Failure> {
        // Who may forget or forge what was done for others is who may change everything.
        let is_of_all = keyspace == KEYSPACE && matches!(verb, Verb::Write | Verb::Admin);
        let may = match is_of_all {
            true => self.principal.may_with_all(verb),
            false => self.principal.may(verb, keyspace),
        };
        if may { Ok(()) } else { Err(forbidden(verb)) }
    }

    /// The key: the second open part, or, where that is empty, what `key_base64` says. Browsers
    /// take `.` and `..` for steps however they are escaped, and cannot ask otherwise.
    pub fn key(&self) -> Result<Vec<u8>, Failure> {
        let key = self.open.get(1).cloned().unwrap_or_default();
        let key = match self.query.base64("key_base64")? {
            Some(_) if !key.is_empty() => {
                let what = "only where the address ends with the slash in front of the key";
                return Err(Failure::bad_parameter("key_base64", what));
            }
            Some(given) => given,
            None => key,
        };
        self.check_key(&key)?;
        Ok(key)
    }

    pub fn check_key(&self, key: &[u8]) -> Result<(), Failure> {
        match key.len() <= self.shared.limits.key_size {
            true => Ok(()),
            false => Err(Failure::too_large("bytes of a key", self.shared.limits.key_size as u64)),
        }
    }

    pub fn engine(&self, error: &Error) -> Failure {
        Failure::of_engine(error, &self.principal, &self.shared.store)
    }

    pub fn store(&self, error: &StoreError) -> Failure {
        Failure::of_store(error, &self.principal, &self.shared.store)
    }

    /// Whether the client asks for this type of content by name, and for no other one rather.
    pub fn accepts(&self, content_type: &str) -> bool {
        let given = self.headers.get_all(ACCEPT).iter();
        is_preferred(content_type, given.filter_map(|given| given.to_str().ok()))
    }

    /// The body, whatever it is.
    pub async fn raw_body(&mut self, size_max: u64) -> Result<Received, Failure> {
        let coding = self.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            let what = "a body is taken as it is: Content-Encoding is identity, or left out";
            return Err(Failure::new(Code::UnsupportedMediaType, what));
        }
        check_announced(&self.body, size_max)?;
        self.is_body_asked_for = true;
        let shared = Arc::clone(&self.shared);
        let received = receive(&mut self.body, size_max, (&shared.http.room, &shared.limits));
        let received = received.await?;
        self.received = received.bytes.len() as u64;
        if let Some(mut once) = self.once.take() {
            match received.bytes.len() < LARGE_WRITE {
                true => once.add_body(&received.bytes),
                false => self.in_place(|| once.add_body(&received.bytes))?,
            }
            self.once = Some(once);
        }
        // It may have taken long.
        Standing::of(self).check()?;
        Ok(received)
    }

    /// The body as JSON text, which it has to say that it is: a page of another site cannot send
    /// that without asking first.
    pub async fn json_text(&mut self, size_max: u64) -> Result<Received, Failure> {
        let is_json = self.headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
        let is_json = is_json.and_then(|given| given.split(';').next());
        if !is_json.is_some_and(|given| given.trim().eq_ignore_ascii_case("application/json")) {
            let what = "the body has to be JSON: Content-Type: application/json";
            return Err(Failure::new(Code::UnsupportedMediaType, what));
        }
        self.raw_body(size_max).await
    }

    /// A small body of JSON: an object with the members that are expected, and no others.
    pub async fn json<T>(&mut self) -> Result<T, Failure>
    where
        T: for<'j> Deserialize<'j>,
    {
        self.json_up_to(self.shared.limits.body_size.min(SMALL_BODY_MAX)).await
    }

    /// The same of another size.
    pub async fn json_up_to<T>(&mut self, size_max: u64) -> Result<T, Failure>
    where
        T: for<'j> Deserialize<'j>,
    {
        let received = self.json_text(size_max).await?;
        let read: Result<Object<T>, _> = serde_json::from_slice(&received.bytes);
        read.map(|Object(read)| read).map_err(|error| invalid_json(&error))
    }

    /// The same, or the default if there is none.
    pub async fn json_or_default<T>(&mut self) -> Result<T, Failure>
    where
        T: for<'j> Deserialize<'j> + Default,
    {
        match self.body.is_end_stream() {
            true => Ok(T::default()),
            false => self.json().await,
        }
    }

    /// Commits a batch, on a thread of its own if that takes long.
    pub async fn commit(
        &self,
        batch: WriteBatch,
        durability: Option<Durability>,
    ) -> Result<SeqNo, Failure> {
        let store = &self.shared.store;
        match batch.size() < LARGE_WRITE {
            true => store.write(batch, durability).await.map_err(|error| self.store(&error)),
            false => self.commit_apart(batch, durability).await,
        }
    }

    /// The same on a thread of its own in any case.
    pub async fn commit_apart(
        &self,
        batch: WriteBatch,
        durability: Option<Durability>,
    ) -> Result<SeqNo, Failure> {
        let store = &self.shared.store;
        let written = store.blocking(move |store| {
            store.buffered(|| store.db().write_with(batch, lithedb::Durability::Buffered))
        });
        let written = written.await.map_err(|error| self.store(&error))?;
        let seqno = written.map_err(|error| self.engine(&error))?;
        self.settle(durability).await?;
        Ok(seqno)
    }

    /// Makes the keyspace that keys of requests are kept in.
    pub async fn once_keyspace(&self) -> Result<(), Failure> {
        let done = self.shared.store.blocking(make_keyspace).await;
        done.map_err(|error| self.store(&error))?.map_err(|error| self.engine(&error))
    }

    /// Waits until what was written is as durable as asked for (N1).
    pub async fn settle(&self, durability: Option<Durability>) -> Result<(), Failure> {
        let store = &self.shared.store;
        let settled = store.settle(durability).await;
        settled.map_err(|error| Failure::of_sync(error, &self.principal, store))
    }

    /// Does something that takes long where the request is: what keeps a thread has its place among
    /// those that do.
    pub fn in_place<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        let _permit = self.shared.store.permit().map_err(|error| self.store(&error))?;
        Ok(tokio::task::block_in_place(work))
    }

    /// Does something of the engine's on a thread of its own.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let done = self.shared.store.blocking(move |_| work()).await;
        done.map_err(|error| self.store(&error))?.map_err(|error| self.engine(&error))
    }
}

pub fn forbidden(verb: Verb) -> Failure {
    let what = format!("the token does not allow it: {} is needed", verb.name());
    Failure::new(Code::Forbidden, what).with("needs", verb.name())
}

pub fn invalid_json(error: &serde_json::Error) -> Failure {
    Failure::new(Code::InvalidJson, format!("this is not the JSON of this call: {error}"))
}

/// A JSON object; what is derived takes an array in its place as well.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

impl<'j, T: Deserialize<'j>> Deserialize<'j> for Object<T> {
    fn deserialize<D: Deserializer<'j>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct OfObject<T>(PhantomData<T>);

        impl<'j, T: Deserialize<'j>> Visitor<'j> for OfObject<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'j>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(OfObject(PhantomData))
    }
}

/// Whether none of the types in headers `Accept` has a higher weight than this one, which is named.
fn is_preferred<'h>(content_type: &str, headers: impl Iterator<Item = &'h str>) -> bool {
    let (mut own, mut highest) = (0.0_f32, 0.0);
    for given in headers.flat_map(|header| header.split(',')) {
        let mut parts = given.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let weight: f32 = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        highest = weight.max(highest);
        if name.eq_ignore_ascii_case(content_type) {
            own = weight.max(own);
        }
    }
    own > 0.0 && own >= highest
}

/// Bytes out of two members of which one says them: text, or base64.
pub fn bytes_of(
    name: &str,
    text: Option<String>,
    base64: Option<&str>,
) -> Result<Option<Vec<u8>>, Failure> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => base64_decoded(base64)
            .map(Some)
            .ok_or_else(|| Failure::new(Code::InvalidJson, format!("{name}_base64 is no base64"))),
        (Some(_), Some(_)) => {
            let what = format!("{name} and {name}_base64: one of them says it");
            Err(Failure::new(Code::InvalidJson, what))
        }
    }
}

/// An answer with a body of this type.
pub fn answer(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub fn json_answer(status: StatusCode, value: &Value) -> Response<Body> {
    json_bytes(status, value.to_string().into_bytes())
}

pub fn json_bytes(status: StatusCode, text: Vec<u8>) -> Response<Body> {
    answer(status, "application/json", Body::whole(Bytes::from(text)))
}

pub fn ok_json(value: &Value) -> Outcome {
    Ok(json_answer(StatusCode::OK, value))
}

pub fn without_body(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub fn with_header(
    mut response: Response<Body>,
    name: HeaderName,
    value: HeaderValue,
) -> Response<Body> {
    response.headers_mut().insert(name, value);
    response
}

/// With the stamp of an entry as its tag.
pub fn tagged(response: Response<Body>, stamp: SeqNo) -> Response<Body> {
    let tag = HeaderValue::from_str(&format!("\"{}\"", stamp.as_u64()));
    with_header(response, ETAG, tag.expect("digits in quotes are a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_preferred_by_their_weight() {
        let is = |headers: &[&str]| is_preferred("application/json", headers.iter().copied());
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json, text/plain, */*",
            "text/plain;q=0.5, application/json;q=0.8",
            "application/json;q=0.001",
            "*/*;q=0.1,application/json ; Q=0.1",
        ] {
            assert!(is(&[json]), "{json}");
        }
        assert!(is(&["text/plain;q=0.3", "application/json;q=0.3"]));
        for other in [
            "",
            "*/*",
            "text/html,*/*;q=0.8",
            "application/json;q=0",
            "application/json;q=0.000, */*;q=0",
            "text/plain, application/json;q=0.5",
            "application/json;q=x",
            "application/jsonl",
        ] {
            assert!(!is(&[other]), "{other}");
        }
        assert!(!is(&["application/json;q=0.5", "text/plain"]));
    }
}
