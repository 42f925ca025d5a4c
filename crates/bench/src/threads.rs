//! The same work on several threads that begin together.

use crate::clock::timed;
use crate::engine::Result;
use std::sync::Barrier;
use std::time::Duration;

/// What each of `count` threads returned for its number, and how long the slowest took.
///
/// # Errors
/// The first error of any thread.
pub fn on_threads<T: Send>(
    count: u64,
    work: impl Fn(u64) -> Result<T> + Sync,
) -> Result<(Vec<T>, Duration)> {
    let barrier = Barrier::new(count as usize);
    let (barrier, work) = (&barrier, &work);
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..count)
            .map(|thread| {
                scope.spawn(move || {
                    barrier.wait();
                    timed(|| work(thread))
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    let slowest = results.iter().map(|(_, time)| *time).max().unwrap_or_default();
    let results = results.into_iter().map(|(result, _)| result).collect::<Result<Vec<T>>>()?;
    Ok((results, slowest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wrong;

    #[test]
    fn results_come_in_the_order_of_the_threads() {
        let (results, _) = on_threads(4, |thread| Ok(thread * 10)).unwrap();
        assert_eq!(results, [0, 10, 20, 30]);
    }

    #[test]
    fn an_error_of_one_thread_is_the_error_of_all() {
        let failed = on_threads(3, |thread| if thread == 1 { wrong("broken") } else { Ok(()) });
        assert_eq!(failed.unwrap_err().to_string(), "broken");
    }
}
