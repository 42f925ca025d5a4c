//! Buffers for blocks, used again.
//!
//! A thread that reads a block into a full cache evicts one of about the same size. The buffer of
//! that one is kept for the thread's next read: no memory is asked for and given back in turn,
//! which with several threads leaves an allocator with holes of as much as the cache holds; and
//! none is zeroed.
//!
//! Invariant
//! - R1  A kept buffer has no other owner.

use std::cell::RefCell;
use std::iter;
use std::sync::Arc;

/// Buffers that a thread keeps.
const KEPT_COUNT_MAX: usize = 4;
/// Larger ones are not kept: they are rare, and would tie memory down.
const KEPT_LEN_MAX: usize = 64 << 10;
/// Lengths are rounded up to this part of them, so that a buffer fits the next block.
const ROUNDING: usize = 32;

thread_local! {
    static KEPT: RefCell<Vec<Arc<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `len` bytes or a little more, with anything in it, that nobody else has.
pub(super) fn take(len: usize) -> Arc<[u8]> {
    let room = rounded(len);
    let kept = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        // Just so long: what a block weighs must not depend on what the thread read before.
        let fits = |buffer: &Arc<[u8]>| buffer.len() == room;
        kept.iter().position(fits).map(|index| kept.swap_remove(index))
    });
    match kept {
        Ok(Some(buffer)) => buffer,
        // None fits, or the thread is ending.
        _ => iter::repeat_n(0, room).collect(),
    }
}

/// Keeps a buffer for a later [`take`], if nobody else has it (R1) and there is room.
pub(super) fn give_back(mut buffer: Arc<[u8]>) {
    if buffer.is_empty() || buffer.len() > KEPT_LEN_MAX || Arc::get_mut(&mut buffer).is_none() {
        return;
    }
    let _dropped_when_the_thread_ends = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() == KEPT_COUNT_MAX {
            kept.swap_remove(0);
        }
        kept.push(buffer);
    });
}

/// `len` rounded up, so that frames of about one size share buffers.
fn rounded(len: usize) -> usize {
    let step = (len / ROUNDING).next_power_of_two();
    len.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_to_a_block_of_about_its_size() {
        let buffer = take(16_300);
        let place = buffer.as_ptr();
        give_back(buffer);
        assert_ne!(take(40_000).as_ptr(), place, "too small");
        assert_ne!(take(1_000).as_ptr(), place, "too large");
        assert_eq!(take(16_200).as_ptr(), place, "rounded up it is as long");
    }

    #[test]
    fn a_buffer_that_is_still_read_is_not_used_again() {
        let buffer = take(5_000);
        let reader = Arc::clone(&buffer);
        give_back(buffer);
        assert_ne!(take(5_000).as_ptr(), reader.as_ptr());
    }

    #[test]
    fn lengths_grow_by_a_sixteenth_at_most() {
        for len in [1, 31, 33, 1000, 16 << 10, (1 << 20) + 1] {
            let room = rounded(len);
            assert!(room >= len && room <= len + len / 16 + 1, "{len} -> {room}");
        }
    }
}
