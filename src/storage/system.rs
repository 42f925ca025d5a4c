//! What the operating system says of the machine, of the process and of a thread, in its own files:
//! wherever the data is.

use std::path::Path;
use std::time::Duration;

use super::{OpenMode, OsStorage, Storage};

/// The first bytes of such a file as text.
pub(crate) fn read_small(path: &str) -> Option<String> {
    let file = OsStorage::new().open(Path::new(path), OpenMode::ReadOnly).ok()?;
    let mut bytes = [0; 256];
    let len = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// How long the calling thread could have run and had no processor, since it began; `None` where
/// the system does not say that. Some 10 us.
pub(crate) fn waited_for_processor() -> Option<Duration> {
    nanos_waited(&read_small("/proc/thread-self/schedstat")?)
}

/// Nanoseconds that it ran, that it waited, and how often it ran (Linux, `sched-stats`).
fn nanos_waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_processor_is_the_second_number() {
        assert_eq!(nanos_waited("1000 58286 1\n"), Some(Duration::from_nanos(58286)));
        assert_eq!(nanos_waited("1000"), None);
        assert_eq!(nanos_waited("1 x 3"), None);
        assert!(read_small("/no/such/file").is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_does_not_shrink() {
        if let Some(before) = waited_for_processor() {
            std::thread::yield_now();
            assert!(waited_for_processor().is_some_and(|after| after >= before));
        }
    }
}
