//! What stands behind the `?` of an address. A parameter that a call does not have is refused: one
//! that is misspelt would else change what the call does.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::{self, FromStr};

use lithedb::PointInTime;

use super::failure::{Code, Failure};
use super::moment::{MOMENTS, parsed_moment};
use super::text::{base64_decoded, percent_decoded};
use crate::config::Durability;

/// Parameters of one request.
const PARAMETERS_MAX: usize = 32;

/// The parameters of a request.
#[derive(Debug, Default)]
pub struct Query(Vec<(&'static str, Vec<u8>)>);

impl Query {
    /// Reads them; `known` are those that the call has.
    pub fn parse(raw: Option<&str>, known: &[&'static str]) -> Result<Query, Failure> {
        let mut found: Vec<(&'static str, Vec<u8>)> = Vec::new();
        let parts = raw.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decoded = |text: &str| percent_decoded(&text.replace('+', "%20"));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(Failure::new(Code::BadRequest, "the query is not percent-encoded"));
            };
            let Some(known) = known.iter().find(|known| known.as_bytes() == name) else {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(Failure::bad_parameter(&name, "this call has no such parameter"));
            };
            if found.len() >= PARAMETERS_MAX || found.iter().any(|(name, _)| name == known) {
                return Err(Failure::bad_parameter(known, "it is there more than once"));
            }
            found.push((known, value));
        }
        Ok(Query(found))
    }

    /// The bytes of a parameter, as of a key.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_slice())
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        let text = self.bytes(name).map(str::from_utf8).transpose();
        text.map_err(|_| Failure::bad_parameter(name, "it is no UTF-8"))
    }

    /// A number within a range.
    pub fn number<T: FromStr + PartialOrd + Display>(
        &self,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = text.parse().ok().filter(|number| is_plain && range.contains(number));
        let (low, high) = (range.start(), range.end());
        let wrong = || Failure::bad_parameter(name, &format!("a number from {low} to {high}"));
        number.ok_or_else(wrong).map(Some)
    }

    /// One of some words.
    pub fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if let Some((_, meant)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*meant));
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(Failure::bad_parameter(name, &format!("one of {}", known.join(", "))))
    }

    pub fn moment(&self, name: &str) -> Result<Option<PointInTime>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        parsed_moment(text).ok_or_else(|| Failure::bad_parameter(name, MOMENTS)).map(Some)
    }

    pub fn base64(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        base64_decoded(text).ok_or_else(|| Failure::bad_parameter(name, "no base64")).map(Some)
    }

    pub fn durability(&self) -> Result<Option<Durability>, Failure> {
        self.choice("durability", DURABILITIES)
    }
}

/// How durable a write is to be when it is answered.
pub const DURABILITIES: &[(&str, Durability)] =
    &[("always", Durability::Always), ("buffered", Durability::Buffered)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_bytes_and_those_that_are_known() {
        let query = Query::parse(Some("from=a%2Fb%00+c&limit=7&&to="), &["from", "to", "limit"]);
        let query = query.unwrap();
        assert_eq!(query.bytes("from"), Some(&b"a/b\0 c"[..]));
        assert_eq!(query.bytes("to"), Some(&b""[..]));
        assert_eq!(query.bytes("prefix"), None);
        assert_eq!(query.number("limit", 1..=10).unwrap(), Some(7_u32));
        assert!(query.number("limit", 1..=6_u32).is_err());
        assert!(query.text("from").unwrap().is_some());
        for wrong in ["limt=1", "limit=1&limit=1", "from=%", "from=%4"] {
            assert!(Query::parse(Some(wrong), &["from", "limit"]).is_err(), "{wrong}");
        }
        let signed = Query::parse(Some("limit=%2B1"), &["limit"]).unwrap();
        assert!(signed.number("limit", 1..=10_u32).is_err());
    }
}
