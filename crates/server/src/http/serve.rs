//! The way of a connection, and of each request on it: found, identified, done, noted.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::X_CONTENT_TYPE_OPTIONS;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::ask::{Ask, Outcome, forbidden};
use super::body::{Body, discard};
use super::failure::Failure;
use super::once::{self, Once};
use super::pace::{Paced, RequestUnderWay, UnderWay};
use super::query::Query;
use super::record::Record;
use super::routes::{Access, Operation, Route, find};
use super::{
    backups, batch, changes, console, guard, history, jobs, keys, keyspaces, metrics, openapi,
    plain, scan, snapshots, stats, tables,
};
use crate::accept::Connection;
use crate::auth::{Principal, Verb};
use crate::metrics::Kind;
use crate::server::Shared;
use crate::stream::Peer;

/// Serves one connection, until it ends or the server does.
pub async fn serve(connection: Connection, shared: Arc<Shared>) {
    let Connection { stream, peer, place: _place } = connection;
    serve_stream(stream, peer, shared).await;
}

/// The same, of whatever bytes come and go by.
pub async fn serve_stream<S>(stream: S, peer: Peer, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let under_way = UnderWay::default();
    let limits = &shared.limits;
    let stream = Paced::new(stream, limits, Arc::clone(&shared.metrics), under_way.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, request_under_way) = (Arc::clone(&shared), under_way.begin());
        async move { Ok::<_, Infallible>(respond(shared, peer, request, request_under_way).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // From the end of a request on; once the head has begun, `Paced` is less patient.
        .header_read_timeout(limits.idle.max(limits.first_byte))
        .max_headers(limits.header_count)
        .max_buf_size(limits.head_size.max(8 << 10))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let draining = shared.draining();
    tokio::select! {
        _ended = &mut connection => return,
        () = draining => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

async fn respond(
    shared: Arc<Shared>,
    peer: Peer,
    request: Request<Incoming>,
    under_way: RequestUnderWay,
) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    let waits = guard::waits_to_be_asked(&parts) && !body.is_end_stream();
    let mut record = Record {
        shared: Arc::clone(&shared),
        began: Instant::now(),
        peer,
        method: "",
        route: "",
        kind: Kind::Other,
        is_endless: false,
        status: 0,
        code: None,
        principal: None,
        received: head_size(&parts),
        sent: 0,
        _under_way: under_way,
    };
    let (outcome, is_read) = match admit(&shared, peer, parts, &mut record) {
        Ok(admitted) => {
            let mut ask = admitted.ask(&shared, body);
            let outcome = run(&mut ask).await;
            record.received += ask.received;
            // To read from a body asks the client for it: who was not asked keeps it.
            let waits = waits && !ask.is_body_asked_for;
            (outcome, !waits && discard(&mut ask.body).await)
        }
        Err(failure) => (Err(failure), !waits && discard(&mut body).await),
    };
    let mut response = outcome.unwrap_or_else(|failure| {
        record.code = Some(failure.code());
        failure_answer(&failure, record.route)
    });
    if !is_read {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(hyper::header::CONNECTION, close);
    }
    record.status = response.status().as_u16();
    add_headers(response.headers_mut());
    response.map(|body| body.recorded(record))
}

/// About what the head took on the wire.
fn head_size(parts: &Parts) -> u64 {
    let path = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let headers = parts.headers.iter();
    let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (path + headers + 16) as u64
}

/// A request that may be made.
struct Admitted {
    principal: Principal,
    route: &'static Route,
    open: Vec<Vec<u8>>,
    query: Query,
    headers: HeaderMap,
    once: Option<Once>,
    tokens_read: u64,
}

impl Admitted {
    fn ask(self, shared: &Arc<Shared>, body: Incoming) -> Ask {
        let Admitted { principal, route, open, query, headers, once, tokens_read } = self;
        let shared = Arc::clone(shared);
        let (is_body_asked_for, received) = (false, 0);
        Ask {
            shared,
            principal,
            route,
            open,
            query,
            headers,
            body,
            once,
            tokens_read,
            is_body_asked_for,
            received,
        }
    }
}

/// Finds the call, and whether it may be made (H1). Who may not is told nothing of what there is.
fn admit(
    shared: &Shared,
    peer: Peer,
    parts: Parts,
    record: &mut Record,
) -> Result<Admitted, Failure> {
    let host = guard::check_host(shared, &parts)?;
    guard::check_expectation(&parts)?;
    // In front of the look-up: a reading meanwhile is seen later.
    let tokens_read = shared.authority.reads();
    let found = find(&parts.method, parts.uri.path());
    let access = found.as_ref().ok().map(|(route, _)| {
        (record.method, record.route, record.kind) = (route.method, route.template, route.kind);
        record.is_endless = matches!(route.operation, Operation::Changes | Operation::StatsStream);
        route.access
    });
    let principal = match access {
        Some(Access::Public) => Principal::anybody(),
        _ => {
            guard::check_origin(&parts, host)?;
            let now = shared.store.began().elapsed();
            guard::identify(shared, &parts.headers, peer, now)?
        }
    };
    let (route, open) = found?;
    let is_allowed = match route.access {
        Access::Public => true,
        Access::Known => principal.may_anything(),
        Access::All(verb) => principal.may_with_all(verb),
        Access::Some(verb) => principal.may_somewhere(verb),
    };
    if route.access != Access::Public {
        record.principal = Some(principal.name().into());
    }
    if !is_allowed {
        return Err(match route.access {
            Access::All(verb) | Access::Some(verb) => forbidden(verb),
            _ => forbidden(Verb::Read),
        });
    }
    let query = Query::parse(parts.uri.query(), route.query)?;
    let once = match once::is_for(route.operation) {
        true => Once::of(&principal, &parts)?,
        false => None,
    };
    Ok(Admitted { principal, route, open, query, headers: parts.headers, once, tokens_read })
}

/// The body of calls that are told nothing.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoMembers {}

async fn run(ask: &mut Ask) -> Outcome {
    use Operation as Op;
    if let Op::Check | Op::CompactKeyspace | Op::FlushKeyspace | Op::VerifyBackup =
        ask.route.operation
    {
        let NoMembers {} = ask.json_or_default().await?;
    }
    match ask.route.operation {
        Op::PlainPut => plain::put(ask).await,
        Op::PlainGet => plain::get(ask).await,
        Op::PlainDelete => plain::delete(ask).await,
        Op::PlainRange => plain::range(ask).await,
        Op::GetKey => keys::get(ask).await,
        Op::PutKey => keys::put(ask).await,
        Op::DeleteKey => keys::delete(ask).await,
        Op::MergeKey => keys::merge(ask).await,
        Op::Scan => scan::scan(ask).await,
        Op::ScanByBody => scan::scan_by_body(ask).await,
        Op::DeleteRange => scan::delete(ask).await,
        Op::Count => scan::count(ask).await,
        Op::MultiGet => batch::multi_get(ask).await,
        Op::Batch => batch::write(ask).await,
        Op::ListKeyspaces => keyspaces::list(ask),
        Op::CreateKeyspace => keyspaces::create(ask).await,
        Op::ShowKeyspace => keyspaces::show(ask),
        Op::DropKeyspace => keyspaces::remove(ask).await,
        Op::RenameKeyspace => keyspaces::rename(ask).await,
        Op::ConvertKeyspace => keyspaces::convert(ask).await,
        Op::CompactKeyspace => keyspaces::compact(ask),
        Op::FlushKeyspace => keyspaces::flush(ask).await,
        Op::ClearKeyspace => keyspaces::clear(ask).await,
        Op::ListTables => tables::list(ask).await,
        Op::History => history::versions(ask).await,
        Op::RestoreKeys => history::restore(ask).await,
        Op::TakeSnapshot => snapshots::take(ask).await,
        Op::ShowSnapshot => snapshots::show(ask),
        Op::DropSnapshot => snapshots::release(ask).await,
        Op::Changes => changes::follow(ask).await,
        Op::Stats => stats::show(ask),
        Op::StatsStream => stats::stream(ask),
        Op::Health => stats::health(ask),
        Op::Alive => Ok(stats::alive()),
        Op::Ready => Ok(stats::ready(ask)),
        Op::WhoAmI => stats::who_am_i(ask),
        Op::Metrics => metrics::show(ask),
        Op::Check => jobs::check(ask),
        Op::ListJobs => jobs::list(ask),
        Op::ShowJob => jobs::show(ask),
        Op::CancelJob => jobs::cancel(ask),
        Op::ListBackups => backups::list(ask).await,
        Op::MakeBackup => backups::make(ask).await,
        Op::RemoveBackup => backups::remove(ask).await,
        Op::VerifyBackup => backups::verify(ask).await,
        Op::RestoreBackup => backups::restore(ask).await,
        Op::OpenApi => openapi::show(ask),
        Op::Root => Ok(console::root()),
        Op::Console => console::file(ask),
    }
}

/// The plain calls have errors of their own form.
fn failure_answer(failure: &Failure, route: &str) -> Response<Body> {
    let is_plain = route.starts_with("/key/") || route == "/range";
    let said = match is_plain {
        true => json!({ "error": failure.message() }),
        false => failure.to_json(),
    };
    let mut response = Response::new(Body::whole(Bytes::from(said.to_string())));
    *response.status_mut() = failure.code().status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in failure.headers() {
        headers.insert(name.clone(), value.clone());
    }
    response
}

/// What is said of every answer, unless it says otherwise: that it is what it says it is, for no
/// other site, and not to be kept.
fn add_headers(headers: &mut HeaderMap) {
    let mut add = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    add(X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(REFERRER_POLICY, "no-referrer");
    add(CACHE_CONTROL, "no-store");
    add(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}
