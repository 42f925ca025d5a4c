//! Regions: memory straight from the system, of the size and at a multiple of a huge page.
//!
//! An allocator gives out memory that it has cut into small pages before; then asking for huge
//! ones comes too late.

#![expect(unsafe_code, reason = "memory of the system has no safe form")]

pub(crate) use imp::Region;

/// Size and alignment of a region: a huge page of most machines.
pub(crate) const REGION_SIZE: usize = 2 << 20;
/// What the system gives out and takes back at least. Where its pages are larger it takes back
/// less.
pub(super) const PAGE_SIZE: usize = 4 << 10;

/// Which pages a region is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paging {
    /// One huge page, if the system has any: all of it is taken at the first touch.
    Huge,
    /// Small pages, each taken at its first touch.
    Small,
}

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::ops::Range;
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{PAGE_SIZE, Paging, REGION_SIZE};

    /// A region, with anything in it. Owned by whoever has it.
    #[derive(Debug)]
    pub(crate) struct Region {
        start: NonNull<u8>,
    }

    // SAFETY: the memory is owned; nothing about it is bound to a thread.
    unsafe impl Send for Region {}
    // SAFETY: a shared region gives out its address only.
    unsafe impl Sync for Region {}

    impl Region {
        /// A new one, if the system has room.
        pub(crate) fn map(paging: Paging) -> Option<Region> {
            // Twice the size holds an aligned piece of the size wherever it begins.
            let size = 2 * REGION_SIZE;
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE;
            // SAFETY: a new mapping, at an address of the system's choice.
            let all = unsafe { mmap_anonymous(ptr::null_mut(), size, protection, flags) };
            let all = all.ok()?;
            let before = all.cast::<u8>().align_offset(REGION_SIZE);
            let start = all.wrapping_byte_add(before);
            let end = start.wrapping_byte_add(REGION_SIZE);
            for (piece, len) in [(all, before), (end, REGION_SIZE - before)] {
                if len > 0 {
                    // SAFETY: a part of the mapping that nobody uses. A refusal wastes addresses
                    // only.
                    let _ = unsafe { munmap(piece, len) };
                }
            }
            let region = Region { start: NonNull::new(start.cast())? };
            region.set_paging(paging);
            Some(region)
        }

        /// Asks for other pages, as far as there is nothing in it yet. Without huge pages
        /// everything works, only slower, so a refusal is ignored.
        pub(crate) fn set_paging(&self, paging: Paging) {
            let advice = match paging {
                Paging::Huge => Advice::LinuxHugepage,
                Paging::Small => Advice::LinuxNoHugepage,
            };
            // SAFETY: the whole mapping; the advice keeps its contents.
            let _ = unsafe { madvise(self.start.as_ptr().cast(), REGION_SIZE, advice) };
        }

        /// Has the system clear it, now instead of at the first write.
        pub(crate) fn touch(&mut self) {
            for offset in (0..REGION_SIZE).step_by(PAGE_SIZE) {
                // SAFETY: within the region.
                let byte = unsafe { self.start.add(offset) };
                // SAFETY: the memory is owned, and anything may be in it.
                unsafe { byte.write_volatile(0) };
            }
        }

        /// Gives the memory of `pages` back. They are there still, full of zeros, and take memory
        /// again once they are touched.
        ///
        /// # Safety
        /// Nobody may have a reference to bytes of these pages.
        pub(in crate::memory) unsafe fn give_back(&self, pages: Range<usize>) {
            let start = self.start.as_ptr().wrapping_add(pages.start * PAGE_SIZE);
            let len = pages.len() * PAGE_SIZE;
            // SAFETY: within the mapping, and nobody looks at what is lost (the caller). A refusal
            // costs memory only.
            let _ = unsafe { madvise(start.cast(), len, Advice::LinuxDontNeed) };
        }

        /// The first byte.
        #[inline]
        pub(crate) fn start(&self) -> NonNull<u8> {
            self.start
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: the whole mapping, whose one owner this is. It can only fail on addresses
            // that are none.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), REGION_SIZE) };
        }
    }
}

/// Elsewhere the allocator does.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use std::ops::Range;
    use std::ptr::NonNull;

    use super::Paging;

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum Region {}

    impl Region {
        pub(crate) fn map(_: Paging) -> Option<Region> {
            None
        }

        pub(crate) fn set_paging(&self, _: Paging) {
            match *self {}
        }

        pub(crate) fn touch(&mut self) {
            match *self {}
        }

        /// # Safety
        /// As there is no region, it is never called.
        pub(in crate::memory) unsafe fn give_back(&self, _: Range<usize>) {
            match *self {}
        }

        pub(crate) fn start(&self) -> NonNull<u8> {
            match *self {}
        }
    }
}
