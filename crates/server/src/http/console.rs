//! The console's files. They hold no data: whoever may connect may have them.

use hyper::header::{HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use hyper::{Response, StatusCode};

use super::ask::{Ask, Outcome, with_header, without_body};
use super::body::Body;
use super::failure::{Code, Failure};
use crate::console;

/// `GET /`, `GET /console`
pub fn root() -> Response<Body> {
    let place = HeaderValue::from_static("/console/");
    with_header(without_body(StatusCode::SEE_OTHER), LOCATION, place)
}

/// `GET /console/{*path}`
pub fn file(ask: &mut Ask) -> Outcome {
    let found = ask.name(0).and_then(console::file);
    let file = found.ok_or_else(|| Failure::new(Code::NotFound, "there is no such file"))?;
    let known = ask.headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let mut response = match known.is_some_and(|known| file.is_known_by(known)) {
        true => without_body(StatusCode::NOT_MODIFIED),
        false => Response::new(Body::whole(file.body.into())),
    };
    for (name, value) in file.headers() {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
