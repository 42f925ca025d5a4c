//! Which files make up the log: the newest file with a valid header, and those that it came from.
//!
//! A file's header may be written before the one of the file below it is durable, so a crash can
//! leave a valid header above a torn one. Then everything from the torn file on was not durable
//! and is cut off. A torn header is told from a damaged one by proof: some valid header or record
//! that says that the log was durable past the start of the file in question.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};

use super::header::FileHeader;
use super::lsn::Lsn;

/// What [`choose_chain`] needs to know about the directory.
pub struct Headers<'a> {
    /// Every log file; `None` when its header is not valid.
    pub files: &'a BTreeMap<u64, Option<FileHeader>>,
    pub path_of: &'a dyn Fn(u64) -> PathBuf,
    pub dir: &'a Path,
}

/// The headers of the files that hold the log from `required_from` on, lowest first.
///
/// `durable_above(n)` is how far the files above number `n` prove that the log was durable.
///
/// # Errors
/// [`Error::Corruption`] naming the file that is missing, damaged, or does not fit; whatever
/// `durable_above` says.
pub fn choose_chain(
    headers: &Headers<'_>,
    required_from: Lsn,
    durable_above: &mut dyn FnMut(u64) -> Result<Lsn>,
) -> Result<Vec<FileHeader>> {
    let mut below = u64::MAX;
    loop {
        let valid = headers.files.range(..below).rev().find_map(|(_, header)| *header);
        let Some(top) = valid else {
            return Err(Error::corruption(headers.dir, 0, "no log file has a valid header"));
        };
        match descend(headers, top, required_from, durable_above)? {
            Descent::Whole(chain) => return Ok(chain),
            Descent::TornHeader { number } => below = number,
        }
    }
}

enum Descent {
    Whole(Vec<FileHeader>),
    /// The header of this file was never durable: nothing from it on was.
    TornHeader {
        number: u64,
    },
}

fn descend(
    headers: &Headers<'_>,
    top: FileHeader,
    required_from: Lsn,
    durable_above: &mut dyn FnMut(u64) -> Result<Lsn>,
) -> Result<Descent> {
    let mut chain = vec![top];
    let mut lowest = top;
    while lowest.start > required_from {
        let Some(previous) = lowest.previous else {
            let what =
                format!("the log starts at {} but is needed from {required_from}", lowest.start);
            return Err(Error::corruption(&(headers.path_of)(lowest.number), 0, what));
        };
        let path = (headers.path_of)(previous.number);
        let needed = format!("the log is needed from {required_from}");
        match headers.files.get(&previous.number) {
            None => {
                // W1: the name was durable before the file was written.
                return Err(Error::corruption(&path, 0, format!("the file is missing; {needed}")));
            }
            Some(None) if durable_above(previous.number)? > previous.start => {
                let what = format!("the header was durable and is not valid; {needed}");
                return Err(Error::corruption(&path, 0, what));
            }
            Some(None) => return Ok(Descent::TornHeader { number: previous.number }),
            Some(Some(header)) => {
                let follows = header.number < lowest.number
                    && header.start == previous.start
                    && (header.start..=header.limit()).contains(&lowest.start);
                if !follows {
                    let path = (headers.path_of)(lowest.number);
                    let what = format!("the file does not continue file {}", header.number);
                    return Err(Error::corruption(&path, 0, what));
                }
                chain.push(*header);
                lowest = *header;
            }
        }
    }
    chain.reverse();
    Ok(Descent::Whole(chain))
}
