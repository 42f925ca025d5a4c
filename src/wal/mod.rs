//! Write-ahead log: makes a commit durable before it is visible.
//!
//! Owns the files in `wal/`. [`Wal`] appends, [`SyncTicket`] syncs beside it, [`replay_in_parts`]
//! reads the log back at open and [`Wal::resume`] goes on behind it, [`RecordReader`] reads it
//! while it is open, [`LogFollower`] while somebody else has it open. Must not know what a payload
//! means. The bytes are described in `docs/format/wal.md`.
//!
//! A position ([`Lsn`]) is a number of bytes of records since the birth of the log. File `k` holds
//! the log from its start on, up to where the file that names it as its previous one starts. The
//! newest file with a valid header and those it came from are the log; other files are leftovers.
//!
//! Invariants
//! - W1  A file's name is durable before a byte is written under it. So a number under which
//!   anything was written is never given to another file, records (which are bound to the number)
//!   of an earlier life of a file never verify, and a file that is missing was lost.
//! - W2  A file's size is durable before its header is written. So a file with a valid header has
//!   the size that the header says.
//! - W3  Numbers and starts rise along the log; a header names the number and the start of the
//!   file before it.
//! - W4  A record lies at its own position, wholly before the start of the next file. Nothing is
//!   ever appended to a file that a recovery has read.
//! - W5  "Durable up to D", in a header or a record, was true when it was written, and stays true:
//!   nothing below D is ever cut off. So if reading stops at X and anything valid, anywhere, says
//!   D > X, then X is damage. If nothing does, no one was told that X is durable: it is cut off.
//! - W6  Likewise for a file's header: its records or a later file that say that the log was
//!   durable past the file's start prove that the header was durable.
//! - W7  A file is released only when the next one's header is durable, and never after a failure:
//!   there is always a file with a durable header at or before the required position.
//! - W8  After a recovery, no file is left between the one that was cut and the new one.
//! - W9  Files that recovery does not need may be kept to be read. They lie in front of the others
//!   without a gap, are given up from the oldest on, and none is overwritten while it is read.
//!   Recovery reads none of them. What is released is durable (the caller sees to it), so that a
//!   record that is missing in them is damage.
//! - W10  A file that has a name elsewhere, as in a checkpoint, is not written to, nor used again:
//!   it loses its name here. It gets one only while it is of the log, all of it durable, and not
//!   written to any more. After a power cut a name may be back that was removed elsewhere and not
//!   durably so, and lead to a file that was used again under another number meanwhile: a header
//!   with a higher number than the name is no header, nor is a record of that file one of this, and
//!   the file is needed by nobody: its name goes only when what the manifest says durably has no
//!   need of it any more.
//! - W11  A file that is given up while somebody reads beside ([`LogFollower`]) is not used again:
//!   it is removed, and that is, put aside for them.
//! - W12  A file notes in which one the log goes on behind it, with that one's start and size,
//!   before anything there is durable. That one has its name and its size by then (W1, W2), and
//!   loses neither before the header of a later one is durable: so if the log ends there and the
//!   file is missing, or has another size, it was lost. Once anything in it is durable the note
//!   says so: if it has no valid header then, it was lost as well.
//!
//! Crashes, and why the decision is the same however often recovery itself is interrupted
//! - While records are appended: a header may reach the disk before the records and headers below
//!   it. The first thing that is missing is X; all above it says D <= X (W5), so it is cut off.
//! - Recovery, before its new header is durable: it has only written bytes that were there
//!   (rewriting what is not known to be durable: a killed process leaves such bytes, and so does a
//!   failed sync) and renamed or made files without valid headers. X is found again, or, if a
//!   power cut takes some of the rewritten bytes, an earlier X that no D has passed.
//! - After that: the new header says D = X, names the file that was cut, and bounds it at X (W4).
//!   The files behind the cut are not reached any more, and then removed (W8).
//! - When a file is made ready: it has no valid header under its number until it is in use.
mod append;
mod chain;
mod directory;
mod follow;
mod header;
mod history;
mod image;
mod inspect;
mod lsn;
mod parts;
mod prepare;
mod record;
mod replay;
mod resume;
mod salvage;
mod survey;
mod sync;
mod window;
mod writer;
mod zeros;

pub use append::RECORD_BUFFER_SIZE;
pub use directory::{WalOptions, WalPlace};
pub use follow::{FollowedLog, LogFollower, Offered};
pub use history::RecordReader;
pub use image::{LogFileImage, LogImage};
pub(crate) use inspect::inspect_log;
pub use lsn::Lsn;
pub use parts::{PartPlace, Parting, RecordVisitor, replay_in_parts};
pub use replay::{RecordRef, Replay, replay};
pub use salvage::{RecordPlace, SalvagedLog, databases_of, salvage_log};
pub use writer::{Wal, WalStats};

#[cfg(test)]
use replay::Recovered;
#[cfg(test)]
use writer::Appended;

#[cfg(test)]
mod tests;
