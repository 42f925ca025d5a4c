//! A backup as one stream of bytes: for pipes, and for storages that take no files one by one.
//!
//! What is in it is what is in a repository's backup: the files of a checkpoint, as they are. Each
//! record has a checksum, bound to the stream and to the place in it; each file its hash; and the
//! last record says that it is the last, with a hash of all that was sent. So what is cut,
//! damaged, put together of two streams or out of order is told. Nothing needs more memory than a
//! record takes, and what is sent when a stream is read back again: 100 bytes a file.

mod format;
mod read;
mod send;
#[cfg(test)]
mod tests;

pub use format::StreamInfo;
pub use read::BackupStream;
pub(super) use read::StreamStep;
pub(crate) use read::fuzz_stream;
