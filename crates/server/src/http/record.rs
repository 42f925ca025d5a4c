//! What is kept of a request when it is over: counts, times, and a line if that is asked for. There
//! is neither its address nor a key in it, but the template of the route (N4).

use std::sync::Arc;

use tokio::time::Instant;

use super::failure::Code;
use super::pace::RequestUnderWay;
use crate::log::{Level, Said};
use crate::metrics::{Kind, Protocol};
use crate::server::Shared;
use crate::stream::Peer;

/// A request under way; noted when it is dropped, which is when the last of its answer was sent, or
/// its client is gone.
#[derive(Debug)]
pub struct Record {
    pub shared: Arc<Shared>,
    pub began: Instant,
    pub peer: Peer,
    pub method: &'static str,
    /// As the table of routes has it.
    pub route: &'static str,
    pub kind: Kind,
    /// Whether its answer has no end of its own: how long it took says nothing.
    pub is_endless: bool,
    pub status: u16,
    pub code: Option<Code>,
    pub principal: Option<Arc<str>>,
    pub received: u64,
    pub sent: u64,
    /// Until then nothing that comes is the head of another.
    pub _under_way: RequestUnderWay,
}

impl Drop for Record {
    fn drop(&mut self) {
        let metrics = &self.shared.metrics;
        let took = self.began.elapsed();
        match self.code {
            // Not what the server could do better.
            Some(Code::Busy) => {}
            _ if self.status >= 500 => metrics.note_failure(Protocol::Http, self.kind),
            _ if self.is_endless => {}
            _ => metrics.note_request(Protocol::Http, self.kind, took),
        }
        if let Some(refusal) = self.code.and_then(Code::refusal) {
            metrics.note_refusal(refusal);
        }
        metrics.note_bytes(Protocol::Http, self.received, self.sent);
        let is_failure = self.status >= 500 && self.code != Some(Code::Busy);
        if !is_failure && !self.shared.log.has_requests() {
            return;
        }
        let level = if is_failure { Level::Error } else { Level::Info };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.shared.log.line(
            level,
            "request",
            &[
                ("method", Said::Text(&self.method)),
                ("route", Said::Text(&self.route)),
                ("status", Said::Number(self.status.into())),
                ("code", Said::Text(&self.code.map_or("", Code::name))),
                ("micros", Said::Number(micros)),
                ("received", Said::Number(self.received)),
                ("sent", Said::Number(self.sent)),
                ("principal", Said::Text(&self.principal.as_deref().unwrap_or_default())),
                ("peer", Said::Text(&self.peer)),
            ],
        );
    }
}
