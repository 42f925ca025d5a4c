//! Which process memory was made in: a process that is forked from another has a copy of its
//! memory, and neither its threads nor a say in what its files are.
//!
//! Linux clears a page in the copy if it was told to (`MADV_WIPEONFORK`), so that to look costs a
//! read of memory: that is done at each call. One older than 4.14 (2017) does not, and there it is
//! not known. Elsewhere the process is asked for its number each time.

#![expect(unsafe_code, reason = "memory of the system has no safe form")]

use std::process;

/// Tells the process in which it was made from those that are forked from that one.
#[derive(Debug)]
pub(crate) struct ProcessMark {
    mark: imp::Mark,
    /// The number of the process in which it was made.
    number: u32,
}

impl ProcessMark {
    /// The mark of this process.
    pub fn new() -> ProcessMark {
        ProcessMark { mark: imp::Mark::new(), number: process::id() }
    }

    /// Whether this is the process in which it was made.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.mark.is_set(self.number)
    }

    /// The number of the process in which it was made.
    pub fn number(&self) -> u32 {
        self.number
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::ptr::{self, NonNull};
    use std::sync::atomic::{AtomicU8, Ordering};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use crate::memory::pages::PAGE_SIZE;

    const SET: u8 = 1;
    /// In the place of a page, where there is none that would be cleared.
    static ALWAYS_SET: AtomicU8 = AtomicU8::new(SET);

    /// The first byte of a page that is full of zeros in what is forked.
    #[derive(Debug)]
    pub(super) struct Mark {
        byte: NonNull<AtomicU8>,
    }

    // SAFETY: what is shared of it is an atomic; nothing about the page is bound to a thread.
    unsafe impl Send for Mark {}
    // SAFETY: as above.
    unsafe impl Sync for Mark {}

    impl Mark {
        /// One that says that it was not forked.
        pub fn new() -> Mark {
            Mark::in_page().unwrap_or(Mark { byte: NonNull::from(&ALWAYS_SET) })
        }

        fn in_page() -> Option<Mark> {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE;
            // SAFETY: a new mapping, at an address of the system's choice.
            let start = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_SIZE, protection, flags) };
            let mark = Mark { byte: NonNull::new(start.ok()?.cast())? };
            let advice = Advice::LinuxWipeOnFork;
            // SAFETY: the whole mapping, which nobody has written to yet.
            let wiped = unsafe { madvise(mark.byte.as_ptr().cast(), PAGE_SIZE, advice) };
            wiped.ok()?;
            mark.byte().store(SET, Ordering::Relaxed);
            Some(mark)
        }

        #[inline(always)]
        pub fn is_set(&self, _process: u32) -> bool {
            self.byte().load(Ordering::Relaxed) == SET
        }

        #[inline(always)]
        fn byte(&self) -> &AtomicU8 {
            // SAFETY: it is static, or mapped as long as this lives; zero, or written through here.
            unsafe { self.byte.as_ref() }
        }
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            if self.byte != NonNull::from(&ALWAYS_SET) {
                // SAFETY: the whole mapping, whose one owner this is. It can only fail on addresses
                // that are none.
                let _ = unsafe { munmap(self.byte.as_ptr().cast(), PAGE_SIZE) };
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    /// Nothing is kept: the system is asked.
    #[derive(Debug)]
    pub(super) struct Mark;

    impl Mark {
        pub fn new() -> Mark {
            Mark
        }

        pub fn is_set(&self, process: u32) -> bool {
            std::process::id() == process
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_here_where_it_was_made() {
        let mark = ProcessMark::new();
        assert!(mark.is_here());
        assert_eq!(mark.number(), process::id());
    }
}
