//! Telling the processor what memory is wanted soon.

#![expect(unsafe_code, reason = "there is no safe way to ask for a prefetch")]

/// Tells the processor that the line at `address` is wanted soon. Harmless at any address: nothing
/// is read as far as the program can tell.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads nothing that the program could notice, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
