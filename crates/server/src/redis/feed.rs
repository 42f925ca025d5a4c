//! A session without a connection, which is fed bytes: what fuzzers and tests of any bytes are for.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lithedb::Db;
use lithedb::storage::MemoryStorage;

use super::frame::{Parsed, Parser};
use super::reply::Reply;
use super::session::{Follows, Row, Session};
use crate::config::{Config, LogFormat};
use crate::server::{Server, Shared};

/// A database in memory, and sessions on it.
#[derive(Debug)]
pub struct Feed {
    shared: Arc<Shared>,
}

impl Feed {
    /// With these limits: small ones are reached by small inputs.
    ///
    /// # Errors
    /// When there is no address to be had on this machine.
    pub fn new(change: impl FnOnce(&mut Config)) -> Result<Feed, Box<dyn std::error::Error>> {
        let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db")?;
        let mut config = Config {
            redis: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            log: LogFormat::Off,
            ..Config::default()
        };
        change(&mut config);
        Ok(Feed { shared: Server::bind(db, config)?.shared() })
    }

    /// Feeds a new session, so many bytes at a time; returns what it says, and whether it has
    /// ended by itself.
    pub fn session(&self, bytes: &[u8], at_a_time: usize) -> (Vec<u8>, bool) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let now = self.shared.store.began().elapsed();
        let entered = self.shared.redis.clients.enter((peer.into(), String::new()), now);
        let mut session = Session::new(Arc::clone(&self.shared), Arc::clone(&entered.client));
        let (mut parser, mut out, mut taken) = (Parser::default(), Reply::new(), 0);
        let (mut arrived, mut sent) = (0, Vec::new());
        while arrived < bytes.len() {
            arrived = (arrived + at_a_time.max(1)).min(bytes.len());
            let mut row = Row::new(&self.shared.redis.databases);
            loop {
                let (limits, input) = (session.frame_limits(), &bytes[taken..arrived]);
                match parser.advance(input, &limits) {
                    _ if session.is_over => break,
                    Parsed::Need(_) => break,
                    Parsed::Error(_) => session.is_over = true,
                    Parsed::Nothing(len) => taken += len,
                    Parsed::Command(len) => {
                        let has_more = input.len() > len;
                        let follows = if has_more { Follows::Something } else { Follows::Nothing };
                        session.execute(parser.args(input), follows, &mut out, &mut row);
                        taken += len;
                    }
                }
                parser.reset();
            }
            session.finish(&mut row, &mut out);
            sent.append(&mut out.bytes);
            if session.is_over {
                return (sent, true);
            }
        }
        (sent, false)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.store.close(); // Its thread has the database, and would go on.
    }
}
