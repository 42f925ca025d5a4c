//! A connection without a socket, which is fed bytes: what fuzzers and tests of any bytes are for.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lithedb::Db;
use lithedb::storage::MemoryStorage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use super::serve::serve_stream;
use crate::config::{Config, LogFormat};
use crate::server::Server;

/// Whoever waits for longer waits in vain: a connection that has got all ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are on their way, at most.
const ON_THE_WAY_MAX: usize = 64 << 10;
/// What is sent behind everything else, with the beginning of another behind that. A client that
/// closes while a request is under way is not answered, unless there is more to be read: so each
/// request that is whole is done.
const LAST: &[u8] = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\nGET";

/// A server of a database in memory, and connections to it.
#[derive(Debug)]
pub struct Feed {
    runtime: Runtime,
    /// Never run; it drains when it is dropped.
    server: Server,
}

impl Feed {
    /// With these limits: small ones are reached by small inputs. Nobody follows events, as those
    /// who do have no end.
    ///
    /// # Errors
    /// When there is no address, or no thread, to be had on this machine.
    pub fn new(change: impl FnOnce(&mut Config)) -> Result<Feed, Box<dyn std::error::Error>> {
        let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db")?;
        let mut config = Config {
            http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            log: LogFormat::Off,
            ..Config::default()
        };
        change(&mut config);
        config.limits.feeds = 0;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Feed { runtime, server: Server::bind(db, config)? })
    }

    /// Feeds a new connection, so many bytes at a time, and behind them a last request. Returns all
    /// that it answers until it ends, which it has to.
    ///
    /// # Panics
    /// When it does not end, or has panicked.
    pub fn connection(&self, bytes: &[u8], at_a_time: usize) -> Vec<u8> {
        let (near, far) = tokio::io::duplex(at_a_time.clamp(1, ON_THE_WAY_MAX));
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        // Of one task, as nothing is gained by waking another thread for each piece.
        let served = serve_stream(far, peer.into(), self.server.shared());
        let (mut from, mut to) = tokio::io::split(near);
        let mut said = Vec::new();
        let talk = async {
            let write = async {
                for bytes in [bytes, LAST] {
                    let _it_may_have_ended = to.write_all(bytes).await;
                }
                let _it_may_have_ended = to.shutdown().await;
            };
            let read = from.read_to_end(&mut said);
            let (_all_is_sent, read, ()) = tokio::join!(write, read, served);
            read.expect("in memory nothing fails");
        };
        let ended = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, talk).await });
        ended.expect("a connection ends when its client has");
        said
    }

    /// Looks whether what is asked rightly is still done.
    ///
    /// # Errors
    /// What was answered instead.
    pub fn ask_rightly(&self) -> Result<(), String> {
        let ask = |request: &str| self.connection(request.as_bytes(), usize::MAX);
        let head = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let made = format!(
            "POST /v1/keyspaces {head}\r\ncontent-length: 17\r\n\r\n{{\"name\":\"behind\"}}"
        );
        let made = ask(&made); // It may be there already.
        let key = "/v1/keyspaces/behind/keys/key";
        let put = ask(&format!("PUT {key} {head}\r\ncontent-length: 5\r\n\r\nvalue"));
        let got = ask(&format!("GET {key} {head}\r\n\r\n"));
        let is_ok = |said: &[u8]| said.starts_with(b"HTTP/1.1 200 ");
        let value = b"\r\n\r\nvalueHTTP/1.1 200 ";
        match is_ok(&put) && is_ok(&got) && count_of(&got, value) == 1 {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&[made, put, got].concat()).into_owned()),
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.server.shared().store.close(); // Its thread has the database, and would go on.
    }
}

/// Whether this may have been answered to what was sent (with the last request behind it): answers
/// one behind the other, no more than there were requests and a failure at the end, none by which
/// the server says that it is at fault. Says how many there are at least; the last one may be
/// broken off.
///
/// # Errors
/// Where it is none.
pub fn judge(sent: &[u8], said: &[u8]) -> Result<usize, String> {
    // Answers to HEAD have no body, whatever they say: both is tried. By place, how many answers
    // are in front of it.
    let has_head = count_of(sent, b"HEAD ") > 0;
    let mut places = BTreeMap::from([(0, 0_usize)]);
    let mut what = String::new();
    while let Some((place, count)) = places.pop_first() {
        let rest = &said[place..];
        if rest.is_empty() {
            let count_max = count_of(sent, b"HTTP/1.") + 2;
            return match count <= count_max {
                true => Ok(count),
                false => Err(format!("{count} answers, and {count_max} requests at most")),
            };
        }
        match Answer::of(rest) {
            Ok(answer) => {
                let count = count + usize::from(!answer.is_interim);
                let whole = (place + answer.head_size + answer.body_size).min(said.len());
                let bare = has_head.then_some(place + answer.head_size);
                for next in [Some(whole), bare].into_iter().flatten() {
                    let known = places.entry(next).or_insert(count);
                    *known = count.min(*known);
                }
            }
            Err(error) => what = format!("at {place}: {error}"),
        }
    }
    Err(what)
}

fn count_of(bytes: &[u8], piece: &[u8]) -> usize {
    bytes.windows(piece.len()).filter(|window| *window == piece).count()
}

/// Where an answer ends.
struct Answer {
    head_size: usize,
    /// As far as it goes; it may be broken off.
    body_size: usize,
    /// That the body may be sent.
    is_interim: bool,
}

impl Answer {
    fn of(bytes: &[u8]) -> Result<Answer, String> {
        let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let Some(head_size) = head_end.map(|end| end + 4) else {
            let begun = &b"HTTP/1."[..bytes.len().min(7)];
            let broken_off = Answer { head_size: bytes.len(), body_size: 0, is_interim: false };
            return bytes.starts_with(begun).then_some(broken_off).ok_or_else(shown);
        };
        let head = str::from_utf8(&bytes[..head_size]).map_err(|_| shown())?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| {
            let rest = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?;
            let (status, _reason) = rest.split_once(' ')?;
            status.parse::<u16>().ok()
        });
        let status = status.ok_or_else(|| format!("no status line: {}", shown()))?;
        if status == 500 {
            return Err(format!("the server is at fault: {}", shown()));
        }
        let header = |name: &str| {
            let mut all = head.split("\r\n").filter_map(|line| line.split_once(": "));
            all.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let body = &bytes[head_size..];
        let body_size = match (status, header("content-length")) {
            (100..200 | 204 | 304, _) => 0,
            (_, Some(size)) => size.parse().map_err(|_| format!("no size: {size:?}"))?,
            _ if header("transfer-encoding") == Some("chunked") => chunks_size(body)?,
            _ => body.len(), // Until the connection ends.
        };
        Ok(Answer { head_size, body_size, is_interim: status < 200 })
    }
}

/// How far the chunks of a body go.
fn chunks_size(body: &[u8]) -> Result<usize, String> {
    let mut place = 0;
    loop {
        let rest = &body[place..];
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else {
            return Ok(body.len());
        };
        let size = str::from_utf8(&rest[..line]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.ok_or_else(|| format!("no size of a chunk: {:?}", &rest[..line]))?;
        place = (place + line + 2 + size + 2).min(body.len());
        if size == 0 {
            return Ok(place);
        }
    }
}
