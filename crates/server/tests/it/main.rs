//! The server as its clients see it, over sockets.
#![allow(clippy::unwrap_used, reason = "a test that fails should panic where it fails")]

mod http;
mod redis;
mod served;
mod sockets;
