//! HTTP, by a client that writes requests as they are, also such as no client should.

mod any_bytes;
mod batch;
mod client;
mod connections;
mod events;
mod guard;
mod keys;
mod keyspaces;
mod limits;
mod maintenance;
mod moments;
mod once;
mod plain;
mod scan;
mod server;
mod standing;
mod tls;
mod values;

pub use client::Client;
use server::Running;
pub use tls::files_in;
