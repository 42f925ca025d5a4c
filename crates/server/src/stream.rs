//! Connections as bytes, and who is at their other end.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// Who is connected.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// By an address.
    Network(SocketAddr),
    /// By a path on this machine: the process, if the system knows it.
    Unix(Option<i32>),
}

impl Peer {
    /// Who is at the other end of a socket of this machine.
    pub fn of_unix(stream: &UnixStream) -> Peer {
        Peer::Unix(stream.peer_cred().ok().and_then(|known| known.pid()))
    }

    /// Where it comes from, for what is counted by that.
    pub fn ip(self) -> IpAddr {
        match self {
            Peer::Network(address) => address.ip(),
            Peer::Unix(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Whether it came by a path.
    pub fn is_unix(self) -> bool {
        matches!(self, Peer::Unix(_))
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer::Network(address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Network(address) => address.fmt(f),
            Peer::Unix(Some(process)) => write!(f, "unix:{process}"),
            Peer::Unix(None) => f.write_str("unix:0"),
        }
    }
}

/// A connection of a client, by TLS or not.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// What the client has connected to, in one word; empty if the system does not tell.
    pub fn local_text(&self) -> String {
        let network = |stream: &TcpStream| stream.local_addr().map(|local| local.to_string());
        match self {
            Stream::Plain(stream) => network(stream).unwrap_or_default(),
            Stream::Tls(stream) => network(stream.get_ref().0).unwrap_or_default(),
            Stream::Unix(stream) => {
                let local = stream.local_addr().ok();
                let path = local.as_ref().and_then(|local| local.as_pathname()).map(Path::display);
                path.map(|path| in_one_word(&format!("{path}:0"))).unwrap_or_default()
            }
        }
    }
}

fn in_one_word(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c.is_control() { '?' } else { c }).collect()
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
