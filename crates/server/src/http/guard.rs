//! Who asks, and from where: looked at in front of everything else, in one place (N2).
//!
//! A browser sends requests for whatever page it shows. It says of each by which name it found the
//! server (`Host`), and of those that change something which page sent it (`Origin`): names that
//! are not this server's are refused, so that no page of another site can use a server that its
//! reader can reach, or one that a name was made to lead to.

use std::net::IpAddr;
use std::time::Duration;

use hyper::header::WWW_AUTHENTICATE;
use hyper::header::{AUTHORIZATION, EXPECT, HOST, HeaderValue, ORIGIN, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Version};

use super::failure::{Code, Failure};
use crate::auth::{Known, Principal};
use crate::config::is_own;
use crate::server::Shared;
use crate::stream::Peer;

/// Refuses who came by a name that is not the server's. Returns host and port, as they were given.
pub fn check_host<'r>(shared: &Shared, parts: &'r Parts) -> Result<&'r str, Failure> {
    let mut given = parts.headers.get_all(HOST).iter();
    let header = given.next().map(HeaderValue::to_str).transpose();
    let wrong = |what| Failure::new(Code::BadRequest, what);
    let header = header.map_err(|_| wrong("the header Host is no name"))?;
    if given.next().is_some() {
        return Err(wrong("the header Host is there more than once"));
    }
    let authority = parts.uri.authority().map(Authority::as_str);
    let host = match authority.or(header) {
        Some(host) => host,
        // Before there was the header, there were no pages that could be misled.
        None if parts.version == Version::HTTP_10 => return Ok(""),
        None => return Err(wrong("the header Host is missing")),
    };
    if !is_name_of(shared, host) {
        let what = "the server is not known by this name: it may be told of others";
        return Err(Failure::new(Code::Misdirected, what));
    }
    Ok(host)
}

fn is_name_of(shared: &Shared, host: &str) -> bool {
    let name = without_port(host);
    if let Ok(address) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        // Nobody can have an address lead elsewhere.
        let served = shared.http_address.map(|served| served.ip());
        return served.is_none_or(|served| {
            served.is_unspecified() || served == address || is_own(served) && is_own(address)
        });
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is("localhost") || shared.config.hosts.iter().any(|known| is(known))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether the client waits with its body until it is asked for it.
pub fn waits_to_be_asked(parts: &Parts) -> bool {
    parts.version > Version::HTTP_10 && parts.headers.contains_key(EXPECT)
}

/// Refuses who expects something else than to be asked for the body. What a client of before there
/// was the header says by it is not looked at.
pub fn check_expectation(parts: &Parts) -> Result<(), Failure> {
    let mut given = parts.headers.get_all(EXPECT).iter();
    let is_known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    match parts.version <= Version::HTTP_10 || given.all(is_known) {
        true => Ok(()),
        false => Err(Failure::new(Code::ExpectationFailed, "Expect: 100-continue, or nothing")),
    }
}

/// Refuses what a page of another site has sent. What reads is refused if the browser says so;
/// whatever else a page sends has an `Origin`.
pub fn check_origin(parts: &Parts, host: &str) -> Result<(), Failure> {
    let refused = || Failure::new(Code::OriginRefused, "a page of another site has sent it");
    if let Some(site) = parts.headers.get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        return Err(refused());
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    match origin {
        Some(("http" | "https", from)) if from.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(refused()),
    }
}

/// For whom a request is done.
pub fn identify(
    shared: &Shared,
    headers: &HeaderMap,
    peer: Peer,
    now: Duration,
) -> Result<Principal, Failure> {
    if let Some(principal) = shared.authority.without_token() {
        return Ok(principal);
    }
    let Some(token) = token_of(headers) else {
        return Err(unknown("one token is needed, as in `Authorization: Bearer TOKEN`"));
    };
    let refused = |why| shared.wrong_tokens.note(shared.log, ("http", peer), why, now);
    match shared.authority.with_token(token, peer.ip(), now) {
        Known::As(principal) => Ok(principal),
        Known::Nobody => {
            refused("nobody has it");
            Err(unknown("nobody has this token"))
        }
        Known::TooOften => {
            let what = "there were too many wrong tokens from this address";
            refused(what);
            let later = HeaderValue::from_static("60");
            Err(Failure::new(Code::TooOften, what).header(RETRY_AFTER, later))
        }
    }
}

/// Nobody is known by what a request brings.
pub fn unknown(what: &str) -> Failure {
    let challenge = HeaderValue::from_static("Bearer realm=\"lithe\"");
    Failure::new(Code::Unauthenticated, what).header(WWW_AUTHENTICATE, challenge)
}

/// The token that a request brings, if it is one.
pub fn token_of(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let header = given.next()?;
    if given.next().is_some() {
        return None;
    }
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_from_addresses() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:80", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("127.0.0.1:", "127.0.0.1"),
            ("localhost:80@evil.example", "localhost:80@evil.example"),
            ("localhost:evil", "localhost:evil"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let check = |method: &str, headers: &[(&str, &str)]| {
            check_origin(&parts(method, headers), "localhost:80").is_ok()
        };
        assert!(check("PUT", &[]), "a program is no page");
        assert!(check("PUT", &[("origin", "http://localhost:80")]));
        assert!(check("GET", &[("origin", "http://evil.example")]), "it cannot read the answer");
        for origin in ["http://evil.example", "null", "http://localhost:81", "file://", ""] {
            assert!(!check("POST", &[("origin", origin)]), "{origin}");
            assert!(!check("DELETE", &[("origin", origin)]), "{origin}");
        }
        assert!(!check("GET", &[("sec-fetch-site", "cross-site")]));
        assert!(!check("GET", &[("sec-fetch-site", "same-site")]));
        assert!(check("GET", &[("sec-fetch-site", "same-origin")]));
    }
}
