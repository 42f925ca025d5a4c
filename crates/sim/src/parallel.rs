//! Running many independent cases on several threads, and surviving the ones that panic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::finding::{Fault, Finding, Verdict};

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls `case` with 0, 1, 2, .. on `threads` threads until it answers `false` or `end` is reached.
pub fn run_cases(threads: usize, end: u64, case: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end || !case(number) {
                        break;
                    }
                }
            });
        }
    });
}

/// What `case` answers, or that it panicked. Its panic message goes into the finding and not to
/// standard error.
///
/// # Errors
/// What the case answers; `Panic`.
pub fn survive<T>(case: impl FnOnce() -> Verdict<T>) -> Verdict<T> {
    install_quiet_hook();
    let was_quiet = IS_QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(case));
    IS_QUIET.set(was_quiet);
    outcome.unwrap_or_else(|panic| Err(Finding::new(Fault::Panic, message_of(&*panic))))
}

/// Panics that `survive` catches print nothing; where they happened is kept for the finding.
fn install_quiet_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_QUIET.get() {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                PANIC_PLACE.with_borrow_mut(|kept| *kept = place);
            } else {
                loud(info);
            }
        }));
    });
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_string());
    let place = PANIC_PLACE.with_borrow_mut(std::mem::take);
    format!("{message} ({place})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_once() {
        let sum = AtomicU64::new(0);
        run_cases(2, 100, |number| {
            sum.fetch_add(number, Ordering::Relaxed);
            true
        });
        assert_eq!(sum.into_inner(), 99 * 100 / 2);
    }

    #[test]
    fn a_panic_becomes_a_finding_with_its_message_and_place() {
        let finding = survive(|| -> Verdict { panic!("the {} broke", "case") }).unwrap_err();
        assert_eq!(finding.fault, Fault::Panic);
        assert!(finding.what.contains("the case broke") && finding.what.contains("parallel.rs"));
    }
}
