//! Calling code of the application's, with its failures contained: what it panics with, or says
//! that it cannot do, comes back as text.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What code of the application's says when it cannot do its work.
type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// What `call` returns, or why it does not: that it panics, if it does, be it while it says why, or
/// while what it has panicked with is dropped.
///
/// # Errors
/// Why it does not.
pub fn contained<T>(
    call: impl FnOnce() -> std::result::Result<T, Refusal>,
) -> std::result::Result<T, String> {
    let told = || call().map_err(|why| why.to_string());
    // What is called is behind a shared reference: what it leaves half done is its own.
    catch_unwind(AssertUnwindSafe(told)).unwrap_or_else(|panic| {
        let why = described(&*panic);
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(another); // It may be of the same kind.
        }
        Err(why)
    })
}

fn described(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            std::panic::panic_any(PanicsAgain);
        }
    }

    #[test]
    fn what_a_call_panics_with_is_told_also_if_dropping_it_panics() {
        let said = |payload: Box<dyn Any + Send>| {
            contained::<()>(|| std::panic::resume_unwind(payload)).unwrap_err()
        };
        assert_eq!(said(Box::new("no")), "it panicked: no");
        assert_eq!(said(Box::new("no".to_owned())), "it panicked: no");
        assert_eq!(said(Box::new(PanicsAgain)), "it panicked: without a message");
    }
}
