//! Memory that clients take together: whoever asks for more than there is left is refused, and
//! nobody else is.
//!
//! It is reckoned in pieces. What is smaller than one takes none: that is bounded by the number of
//! connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// 16 TiB in pieces of 64 KiB: a semaphore has places for it where words have 32 bits, too.
const PIECES_MAX: u32 = 1 << 28;

/// Memory for what is large.
#[derive(Debug)]
pub struct Room {
    pieces: Arc<Semaphore>,
    piece_count: u32,
    piece_size: usize,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others have taken it.
    Now,
    /// It is more than so many bytes, which is all that there is.
    Ever(u64),
}

/// Room that is taken until this is dropped.
#[derive(Debug, Default)]
pub struct Taken {
    permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// For so many bytes.
    pub fn new(bytes: u64, piece_size: usize) -> Room {
        let pieces = u32::try_from(bytes / piece_size as u64).unwrap_or(u32::MAX);
        let piece_count = pieces.clamp(1, PIECES_MAX);
        Room { pieces: Arc::new(Semaphore::new(piece_count as usize)), piece_count, piece_size }
    }

    /// All of it, in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.piece_count) * self.piece_size as u64
    }

    /// How much of it is taken.
    pub fn taken(&self) -> u64 {
        self.size() - (self.pieces.available_permits() * self.piece_size) as u64
    }

    /// Room for so many bytes.
    pub fn take(&self, bytes: usize) -> Result<Taken, NoRoom> {
        let mut taken = Taken::default();
        taken.hold(self, bytes)?;
        Ok(taken)
    }
}

impl Taken {
    /// Takes more of the room, or gives some back, so that it is for so many bytes. When there is
    /// none it stays what it was.
    pub fn hold(&mut self, room: &Room, bytes: usize) -> Result<(), NoRoom> {
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes / room.piece_size;
        if wanted == held {
            return Ok(());
        }
        if wanted < held {
            // Those that are split off are given back at once.
            self.permit.as_mut().map(|permit| permit.split(held - wanted));
            return Ok(());
        }
        let wanted = u32::try_from(wanted).ok().filter(|wanted| *wanted <= room.piece_count);
        let wanted = wanted.ok_or(NoRoom::Ever(room.size()))?;
        let more = Arc::clone(&room.pieces).try_acquire_many_owned(wanted - held as u32);
        let more = more.map_err(|_| NoRoom::Now)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 1 << 10;

    #[test]
    fn room_is_limited_and_comes_back() {
        let room = Room::new(16 * PIECE as u64, PIECE);
        let most = room.take(15 * PIECE).unwrap();
        assert_eq!(room.take(2 * PIECE).unwrap_err(), NoRoom::Now);
        let mut little = room.take(PIECE - 1).unwrap();
        assert_eq!(little.hold(&room, 2 * PIECE), Err(NoRoom::Now));
        little.hold(&room, PIECE).unwrap();
        assert!(room.take(PIECE).is_err());
        assert!(room.take(10).is_ok(), "what is small needs none");
        assert_eq!(room.taken(), room.size());
        drop(most);
        little.hold(&room, 9 * PIECE).unwrap();
        little.hold(&room, 3 * PIECE + 1).unwrap();
        assert_eq!(room.taken(), 3 * PIECE as u64);
        assert_eq!(little.hold(&room, 17 * PIECE), Err(NoRoom::Ever(room.size())));
        assert_eq!(room.taken(), 3 * PIECE as u64, "it is as it was");
        drop(little);
        assert!(room.take(16 * PIECE).is_ok());
    }
}
