//! Connections: how many there may be, TLS, and when they have to end.
//!
//! `hyper` and the Redis protocol are served on streams that come from here, one task each. Nothing
//! is kept for a connection before it has its place (N3).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::{Limits, is_own};
use crate::log::{Level, Said};
use crate::metrics::{Protocol, Refusal};
use crate::server::{Phase, Shared};
use crate::socket::SocketFile;
use crate::stream::{Peer, Stream};

/// When the system has no more descriptors, it has some after a while.
const OUT_OF_FILES_PAUSE: Duration = Duration::from_millis(50);

/// How many connections there are.
#[derive(Debug)]
pub struct Gate {
    connections: usize,
    per_address: usize,
    open: Mutex<Open>,
    /// Number of those that are open, for whoever waits for the last.
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place; free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    pub fn new(limits: &Limits) -> Gate {
        Gate {
            connections: limits.connections,
            per_address: limits.connections_per_address,
            open: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }

    fn enter(self: &Arc<Gate>, address: IpAddr) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.count >= self.connections {
            return None;
        }
        if !is_own(address) {
            let of_address = open.by_address.entry(address).or_default();
            if *of_address >= self.per_address {
                return None;
            }
            *of_address += 1;
        }
        open.count += 1;
        self.count.send_replace(open.count);
        Some(Place { gate: Arc::clone(self), address })
    }

    /// Waits until there are none.
    pub async fn wait_until_empty(&self) {
        let mut count = self.count.subscribe();
        let _the_sender_is_here = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.gate.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_address) = open.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                open.by_address.remove(&self.address);
            }
        }
        open.count -= 1;
        self.gate.count.send_replace(open.count);
    }
}

/// A connection, ready to be served.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    pub peer: Peer,
    /// Held for as long as it is open.
    pub place: Place,
}

/// Where connections come in.
#[derive(Debug)]
pub enum Listener {
    Network(TcpListener),
    /// With its file, which has to go first.
    Unix(SocketFile, UnixListener),
}

/// A connection that has come in.
enum Accepted {
    Network(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        Ok(match self {
            Listener::Network(listener) => {
                let (stream, peer) = listener.accept().await?;
                (Accepted::Network(stream), peer.into())
            }
            Listener::Unix(_file, listener) => {
                let (stream, _it_has_no_path) = listener.accept().await?;
                let peer = Peer::of_unix(&stream);
                (Accepted::Unix(stream), peer)
            }
        })
    }
}

/// Accepts connections until the server drains, and serves each in a task of its own.
pub async fn accept_on<Served>(
    listener: Listener,
    protocol: Protocol,
    shared: Arc<Shared>,
    serve: fn(Connection, Arc<Shared>) -> Served,
) where
    Served: Future<Output = ()> + Send + 'static,
{
    let mut phase = shared.phase.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _over = phase.wait_for(|phase| *phase != Phase::Serving) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client is gone already, or there are no descriptors.
                if !is_of_one_connection(&error) {
                    let why = ("why", Said::Text(&error));
                    shared.log.line(Level::Warn, "cannot accept connections", &[why]);
                    tokio::time::sleep(OUT_OF_FILES_PAUSE).await;
                }
                continue;
            }
        };
        let Some(place) = shared.gate.enter(peer.ip().to_canonical()) else {
            shared.metrics.note_refusal(Refusal::Connections);
            continue; // Closed as it is: an answer would cost what there is too little of.
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let stream = match stream {
                Accepted::Network(stream) => hand_shake(stream, &shared).await,
                // What does not leave the machine goes as it is.
                Accepted::Unix(stream) => Some(Stream::Unix(stream)),
            };
            let Some(stream) = stream else { return };
            let metrics = Arc::clone(&shared.metrics);
            let _connected = metrics.connected(protocol);
            serve(Connection { stream, peer, place }, shared).await;
        });
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The stream that requests come on; `None` when the client does not speak TLS as it should, in
/// time.
async fn hand_shake(stream: TcpStream, shared: &Shared) -> Option<Stream> {
    let _latency_is_worse = stream.set_nodelay(true);
    let Some(tls) = &shared.tls else { return Some(Stream::Plain(stream)) };
    let acceptor = TlsAcceptor::from(tls.config());
    match tokio::time::timeout(shared.limits.first_byte, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(Stream::Tls(Box::new(stream))),
        Ok(Err(_not_tls)) => {
            shared.metrics.note_refusal(Refusal::Malformed);
            None
        }
        Err(_too_slow) => {
            shared.metrics.note_refusal(Refusal::Slow);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_in_all_and_by_address_and_come_back() {
        let limits = Limits { connections: 3, connections_per_address: 1, ..Limits::default() };
        let gate = Arc::new(Gate::new(&limits));
        let (own, one, other) = ("127.0.0.1", "10.0.0.1", "10.0.0.2");
        let enter = |address: &str| gate.enter(address.parse().unwrap());
        let first = enter(one).unwrap();
        assert!(enter(one).is_none());
        let _second = enter(other).unwrap();
        let third = enter(own).unwrap();
        assert!(enter(own).is_none(), "there are three");
        drop(first);
        let fourth = enter(own).unwrap();
        drop((third, fourth));
        let _fifth = enter(one).unwrap();
        assert_eq!(*gate.count.borrow(), 2);
        assert_eq!(gate.open.lock().unwrap().by_address.len(), 2);
    }
}
