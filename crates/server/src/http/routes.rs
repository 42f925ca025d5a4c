//! Which calls there are: method, address, what they are counted as, and who may use them at all.
//! The description for programs is made of the same table (`openapi`).

use hyper::Method;

use super::failure::{Code, Failure};
use super::text::percent_decoded;
use crate::auth::Verb;
use crate::metrics::Kind;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    PlainPut,
    PlainGet,
    PlainDelete,
    PlainRange,
    ListKeyspaces,
    CreateKeyspace,
    ShowKeyspace,
    DropKeyspace,
    RenameKeyspace,
    ConvertKeyspace,
    CompactKeyspace,
    FlushKeyspace,
    ClearKeyspace,
    ListTables,
    GetKey,
    PutKey,
    DeleteKey,
    MergeKey,
    Scan,
    ScanByBody,
    DeleteRange,
    Count,
    MultiGet,
    Batch,
    History,
    RestoreKeys,
    TakeSnapshot,
    ShowSnapshot,
    DropSnapshot,
    Changes,
    Stats,
    StatsStream,
    Metrics,
    Alive,
    Ready,
    Health,
    Check,
    ListBackups,
    MakeBackup,
    RemoveBackup,
    VerifyBackup,
    RestoreBackup,
    ListJobs,
    ShowJob,
    CancelJob,
    WhoAmI,
    OpenApi,
    Root,
    Console,
}

/// Who may use a call, in front of what its keyspaces need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody: it tells nothing.
    Public,
    /// Who may do something; what, is looked at when the keyspaces are known.
    Known,
    /// Who may do this with all keyspaces.
    All(Verb),
    /// Who may do this with some.
    Some(Verb),
}

/// A call.
#[derive(Debug)]
pub struct Route {
    pub method: &'static str,
    /// Parts in braces are any one part; `{*path}` is all that is left.
    pub template: &'static str,
    pub operation: Operation,
    pub kind: Kind,
    pub access: Access,
    /// Parameters behind the `?`.
    pub query: &'static [&'static str],
    pub summary: &'static str,
}

const READ: &[&str] = &["at", "snapshot", "key_base64"];
const WRITE: &[&str] = &["ttl", "expires", "durability", "key_base64"];
const DELETE: &[&str] = &["durability", "key_base64"];
const RANGE: &[&str] = &["prefix", "from", "to", "at", "snapshot"];
const SCAN: &[&str] =
    &["prefix", "from", "to", "reverse", "limit", "cursor", "values", "at", "snapshot"];
const SCAN_BY_BODY: &[&str] = &["reverse", "limit", "values", "at", "snapshot"];
const DELETE_RANGE: &[&str] = &["prefix", "from", "to", "confirm", "durability"];
const HISTORY: &[&str] = &["from", "to", "limit", "order", "values", "key_base64"];

macro_rules! routes {
    ($($method:ident $template:literal $operation:ident $kind:ident $access:expr, $query:expr,
       $summary:literal;)*) => {
        /// All of them.
        pub const ROUTES: &[Route] = &[$(Route {
            method: stringify!($method),
            template: $template,
            operation: Operation::$operation,
            kind: Kind::$kind,
            access: $access,
            query: $query,
            summary: $summary,
        },)*];
    };
}

use Access::{All, Known, Public, Some as AnyWith};

routes! {
    PUT "/key/{key}" PlainPut Put Known, &[], "Puts a value in keyspace default";
    GET "/key/{key}" PlainGet Get Known, &[], "The value of a key in keyspace default";
    DELETE "/key/{key}" PlainDelete Delete Known, &[], "Deletes a key in keyspace default";
    GET "/range" PlainRange Scan Known, &["start", "end"], "Keys and values from start to end";
    GET "/v1/keyspaces" ListKeyspaces Other Known, &[], "The keyspaces";
    POST "/v1/keyspaces" CreateKeyspace Admin Known, &[], "Makes a keyspace";
    GET "/v1/keyspaces/{keyspace}" ShowKeyspace Other Known, &[], "A keyspace with its figures";
    DELETE "/v1/keyspaces/{keyspace}" DropKeyspace Admin Known, &["confirm"],
        "Drops a keyspace with all that is in it";
    POST "/v1/keyspaces/{keyspace}/rename" RenameKeyspace Admin Known, &[],
        "Gives a keyspace another name";
    POST "/v1/keyspaces/{keyspace}/convert" ConvertKeyspace Admin Known, &[],
        "Gives a keyspace another structure, or other options: a job";
    POST "/v1/keyspaces/{keyspace}/compact" CompactKeyspace Admin Known, &[],
        "Gives back the room that is not needed: a job";
    POST "/v1/keyspaces/{keyspace}/flush" FlushKeyspace Admin Known, &[],
        "Moves what is in memtables, of all keyspaces, into the structures";
    POST "/v1/keyspaces/{keyspace}/clear" ClearKeyspace Delete Known, &["durability"],
        "Deletes everything in a keyspace";
    GET "/v1/keyspaces/{keyspace}/tables" ListTables Other Known, &[],
        "What the structure of a keyspace consists of";
    GET "/v1/keyspaces/{keyspace}/keys/{key}" GetKey Get Known, READ, "A value, or its entry";
    HEAD "/v1/keyspaces/{keyspace}/keys/{key}" GetKey Get Known, READ, "Whether a key is there";
    PUT "/v1/keyspaces/{keyspace}/keys/{key}" PutKey Put Known, WRITE, "Puts a value";
    DELETE "/v1/keyspaces/{keyspace}/keys/{key}" DeleteKey Delete Known, DELETE, "Deletes a key";
    POST "/v1/keyspaces/{keyspace}/merge/{key}" MergeKey Put Known, DELETE,
        "Merges an operand into a value";
    GET "/v1/keyspaces/{keyspace}/keys" Scan Scan Known, SCAN, "Entries, in the order of keys";
    POST "/v1/keyspaces/{keyspace}/scan" ScanByBody Scan Known, SCAN_BY_BODY,
        "The same, with bounds and cursor in the body: for keys of any length";
    DELETE "/v1/keyspaces/{keyspace}/keys" DeleteRange Delete Known, DELETE_RANGE,
        "Deletes the keys of a range";
    GET "/v1/keyspaces/{keyspace}/count" Count Scan Known, RANGE, "Number of keys in a range";
    POST "/v1/keyspaces/{keyspace}/multi-get" MultiGet Get Known, &["at", "snapshot", "values"],
        "Several entries, as of one moment";
    POST "/v1/batch" Batch Batch Known, &["durability"],
        "Several writes, all of them or none, if conditions hold";
    GET "/v1/keyspaces/{keyspace}/history/{key}" History Scan Known, HISTORY,
        "What happened to a key";
    POST "/v1/keyspaces/{keyspace}/restore" RestoreKeys Batch Known, &[],
        "Makes keys what they were at a moment";
    POST "/v1/snapshots" TakeSnapshot Other AnyWith(Verb::Read), &[], "Holds this moment";
    GET "/v1/snapshots/{id}" ShowSnapshot Other AnyWith(Verb::Read), &[], "A snapshot";
    DELETE "/v1/snapshots/{id}" DropSnapshot Other AnyWith(Verb::Read), &[],
        "Lets a snapshot go";
    GET "/v1/changes" Changes Other AnyWith(Verb::Read), &["since", "keyspaces", "previous"],
        "Commits as they come, as server-sent events";
    GET "/v1/stats" Stats Other All(Verb::Stats), &[], "Figures of engine and server";
    GET "/v1/stats/stream" StatsStream Other All(Verb::Stats), &["interval"],
        "The same again and again, as server-sent events";
    GET "/metrics" Metrics Other All(Verb::Stats), &[], "Figures in the format of Prometheus";
    GET "/health" Alive Other Public, &[], "Whether the server answers";
    HEAD "/health" Alive Other Public, &[], "Whether the server answers";
    GET "/ready" Ready Other Public, &[], "Whether the server takes requests that write";
    HEAD "/ready" Ready Other Public, &[], "Whether the server takes requests that write";
    GET "/v1/health" Health Other All(Verb::Stats), &[], "How the database is, in detail";
    POST "/v1/check" Check Admin All(Verb::Admin), &[], "Verifies the whole database: a job";
    GET "/v1/backups" ListBackups Admin All(Verb::Backup), &[], "The backups";
    POST "/v1/backups" MakeBackup Admin All(Verb::Backup), &[], "Makes a backup: a job";
    DELETE "/v1/backups/{name}" RemoveBackup Admin All(Verb::Backup), &[],
        "Removes a backup, and the files that only it has";
    POST "/v1/backups/{name}/verify" VerifyBackup Admin All(Verb::Backup), &[],
        "Reads a backup and compares it with its hashes: a job";
    POST "/v1/backups/{name}/restore" RestoreBackup Admin All(Verb::Backup), &[],
        "Makes a new database of a backup, beside the backups: a job";
    GET "/v1/jobs" ListJobs Admin Known, &[], "Jobs under way, and those that were last";
    GET "/v1/jobs/{id}" ShowJob Admin Known, &[], "A job";
    DELETE "/v1/jobs/{id}" CancelJob Admin Known, &[], "Ends a job as soon as it can be ended";
    GET "/v1/whoami" WhoAmI Other Known, &[], "Whose token it is, and what it allows";
    GET "/v1/openapi.json" OpenApi Other Known, &[], "The description of all this";
    GET "/" Root Other Public, &[], "Leads to the console";
    GET "/console" Root Other Public, &[], "Leads to the console";
    GET "/console/{*path}" Console Other Public, &[], "The console's files";
    HEAD "/console/{*path}" Console Other Public, &[], "The console's files";
}

/// The call of an address, and the parts of the address that it leaves open.
pub fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<Vec<u8>>), Failure> {
    let mut allowed: Vec<&'static str> = Vec::new();
    for route in ROUTES {
        let Some(open) = open_parts(route.template, path) else { continue };
        if route.method != method.as_str() {
            allowed.push(route.method);
            continue;
        }
        let decoded: Option<Vec<Vec<u8>>> = open.into_iter().map(percent_decoded).collect();
        let decoded = decoded
            .ok_or_else(|| Failure::new(Code::BadRequest, "the address is not percent-encoded"))?;
        return Ok((route, decoded));
    }
    if allowed.is_empty() {
        return Err(Failure::new(Code::NotFound, "there is nothing at this address"));
    }
    let what = format!("this address has {}", allowed.join(", "));
    let allowed = hyper::header::HeaderValue::from_str(&allowed.join(", "));
    let failure = Failure::new(Code::MethodNotAllowed, what);
    Err(match allowed {
        Ok(allowed) => failure.header(hyper::header::ALLOW, allowed),
        Err(_) => failure,
    })
}

/// What stands in an address where a template has braces; `None` if it is another one's.
fn open_parts<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let mut open = Vec::new();
    let (mut left, mut rest) = (template.strip_prefix('/')?, path.strip_prefix('/')?);
    loop {
        if left.starts_with("{*") {
            open.push(rest);
            return Some(open);
        }
        let (expected, behind_expected) = split_part(left);
        let (part, behind) = split_part(rest);
        if expected.starts_with('{') {
            open.push(part);
        } else if expected != part {
            return None;
        }
        match (behind_expected, behind) {
            (None, None) => return Some(open),
            (Some(next), Some(following)) => (left, rest) = (next, following),
            _ => return None,
        }
    }
}

fn split_part(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((part, rest)) => (part, Some(rest)),
        None => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> Option<(Operation, Vec<Vec<u8>>)> {
        let method = method.parse().unwrap();
        find(&method, path).ok().map(|(route, parts)| (route.operation, parts))
    }

    #[test]
    fn parts_of_addresses_are_any_bytes() {
        let key = |path: &str| found("GET", path).map(|(_, parts)| parts);
        let keys = "/v1/keyspaces/a/keys";
        assert_eq!(
            key(&format!("{keys}/b%2Fc%00%FF")),
            Some(vec![b"a".into(), b"b/c\0\xff".into()])
        );
        assert_eq!(key(&format!("{keys}/")), Some(vec![b"a".to_vec(), Vec::new()]));
        assert_eq!(found("GET", keys).map(|(operation, _)| operation), Some(Operation::Scan));
        assert_eq!(key(&format!("{keys}/b/c")), None);
        assert_eq!(key(&format!("{keys}/%zz")), None);
        assert_eq!(found("GET", "/console/a/b.js").unwrap().1, [b"a/b.js"]);
        assert_eq!(found("GET", "/console/").unwrap().1, [b""]);
        for nothing in ["", "/v1", "/v1/", "//", "/key", "/v1/keyspaces/a/keys/b/", "/consol"] {
            assert_eq!(found("GET", nothing), None, "{nothing}");
        }
    }

    #[test]
    fn another_method_is_told_which_there_are() {
        let failure = find(&Method::POST, "/key/a").unwrap_err();
        assert_eq!(failure.code(), Code::MethodNotAllowed);
        assert_eq!(failure.headers()[0].1, "PUT, GET, DELETE");
        assert_eq!(find(&Method::POST, "/nothing").unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn no_address_is_that_of_two_calls() {
        for (index, route) in ROUTES.iter().enumerate() {
            let path = route.template.replace(['{', '}', '*'], "");
            let (first, _) = find(&route.method.parse().unwrap(), &path).unwrap();
            assert!(
                std::ptr::eq(first, &raw const ROUTES[index]) || first.template == route.template
            );
        }
    }
}
