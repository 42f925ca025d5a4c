//! Showing a segment of a space, also one that is damaged or in use.

use std::ops::ControlFlow;

use super::block::{BLOCK_SIZE, SegmentId, decode_header, open};
use crate::base::Result;
use crate::pieces::{FileWindow, Piece, Tail, Visit, Walk};

const BLOCK_LEN: u64 = BLOCK_SIZE as u64;

/// Shows a segment: its blocks, those that verify and those that do not.
pub fn inspect_space_segment(
    window: &mut FileWindow<'_>,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let path = window.path;
    let id: Option<SegmentId> = window.bytes(0, BLOCK_LEN)?.and_then(decode_header);
    let header = id.map(|id| {
        Piece::sound(0, BLOCK_LEN, "file header")
            .field("space", format!("{:016x}", id.space))
            .field("number", id.number)
    });
    let header = header.ok_or_else(|| "the header does not verify".to_owned());
    if window.show_header(BLOCK_LEN, header, visit).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let Some(id) = id else { return Ok(window.show_unverifiable(BLOCK_LEN, visit)) };
    let walk = Walk { start: BLOCK_LEN, step: BLOCK_LEN, tail: Tail::Room };
    let mut probe = |window: &mut FileWindow<'_>, offset: u64| -> Result<Option<Piece>> {
        let Some(block) = window.bytes(offset, BLOCK_LEN)? else { return Ok(None) };
        let verifies = open(block, id.tag(), offset, path).is_ok();
        Ok(verifies.then(|| Piece::sound(offset, BLOCK_LEN, "block")))
    };
    walk.run(window, &mut probe, visit)
}
