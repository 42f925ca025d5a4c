//! Progress of a long command: a bar on standard error with rate and time left.
//!
//! Only on a terminal, only when not quiet, and only for what takes longer than half a second.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lithedb::base::{Clock, SystemClock};

use crate::notation::{bytes_text, count_text, duration_text, rate_text};
use crate::output::Notices;

/// What ends sooner shows no bar.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Time between two drawings.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// How far a command has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows read and written.
    pub rows: u64,
    /// Bytes of input behind them.
    pub bytes: u64,
}

/// A progress bar that may never show.
pub struct Progress {
    clock: SystemClock,
    total_bytes: Option<u64>,
    visibility: Visibility,
    bar: Option<ProgressBar>,
    drawn_at: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Shown,
    Hidden,
}

impl Progress {
    /// Starts the time. `total_bytes` is the size of the input, if known.
    pub fn start(notices: Notices, total_bytes: Option<u64>) -> Progress {
        let is_shown = notices == Notices::Shown && io::stderr().is_terminal();
        let visibility = if is_shown { Visibility::Shown } else { Visibility::Hidden };
        let clock = SystemClock::new();
        Progress { clock, total_bytes, visibility, bar: None, drawn_at: Duration::ZERO }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Draws when it is time to. Cheap enough to call for every batch.
    pub fn update(&mut self, done: Done) {
        if let Some(now) = self.time_to_draw() {
            let bar = self.bar.get_or_insert_with(|| new_bar(self.total_bytes));
            bar.set_position(done.bytes);
            bar.set_message(progress_text(done, self.total_bytes, now));
        }
    }

    /// As [`Progress::update`], of work whose size is not known for certain: so many bytes were
    /// read and written, and so many are still to be read.
    pub fn update_work(&mut self, (read, written): (u64, u64), left: u64) {
        if let Some(now) = self.time_to_draw() {
            let total = read + left;
            let bar = self.bar.get_or_insert_with(|| new_bar(Some(total)));
            bar.set_length(total);
            bar.set_position(read);
            bar.set_message(work_text((read, written), left, now));
        }
    }

    /// The time since the start, if it is time to draw.
    fn time_to_draw(&mut self) -> Option<Duration> {
        let now = self.elapsed();
        let is_early = now < SHOWN_AFTER || now < self.drawn_at + DRAWN_EVERY;
        if self.visibility == Visibility::Hidden || is_early {
            return None;
        }
        self.drawn_at = now;
        Some(now)
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(total_bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match total_bytes {
        Some(total) => (ProgressBar::new(total), "{bar:28} {percent:>3}%  {msg}"),
        None => (ProgressBar::no_length(), "{spinner} {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is well-formed"))
}

/// `1,234 rows  567,890 rows/s  45.6 MB/s  12.00 s left`.
fn progress_text(done: Done, total_bytes: Option<u64>, elapsed: Duration) -> String {
    let mut text = format!(
        "{} rows  {} rows/s  {}",
        count_text(done.rows),
        rate_text(done.rows, elapsed),
        megabytes_per_second(done.bytes, elapsed)
    );
    if let Some(left) = total_bytes.and_then(|total| time_left(done.bytes, total, elapsed)) {
        text = format!("{text}  {} left", time_left_text(left));
    }
    text
}

/// `1.2 GiB read, 0.9 GiB written  85.1 MB/s  12 s left`.
fn work_text((read, written): (u64, u64), left: u64, elapsed: Duration) -> String {
    let done = format!("{} read, {} written", bytes_text(read), bytes_text(written));
    let rate = megabytes_per_second(written, elapsed);
    match time_left(read, read + left, elapsed) {
        Some(time) => format!("{done}  {rate}  {} left", time_left_text(time)),
        None => format!("{done}  {rate}"),
    }
}

/// The time that the rest takes at the rate so far; `None` when there is no rate yet.
fn time_left(done_bytes: u64, total_bytes: u64, elapsed: Duration) -> Option<Duration> {
    let left = total_bytes.saturating_sub(done_bytes) as f64;
    let seconds = elapsed.as_secs_f64() * left / done_bytes as f64;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Whole seconds below a minute, so that the text does not flicker.
fn time_left_text(left: Duration) -> String {
    match left.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        _ => duration_text(left),
    }
}

/// `45.6 MB/s`, in millions of bytes.
pub fn megabytes_per_second(bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    format!("{:.1} MB/s", bytes as f64 / 1e6 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_follow_from_what_is_done() {
        let done = Done { rows: 1_000_000, bytes: 50_000_000 };
        let text = progress_text(done, Some(200_000_000), Duration::from_secs(2));
        assert_eq!(text, "1,000,000 rows  500,000 rows/s  25.0 MB/s  6 s left");
        let text = progress_text(done, Some(50_000_001), Duration::from_secs(2));
        assert!(text.ends_with("  0 s left"), "{text}");
        let text = progress_text(done, None, Duration::from_secs(2));
        assert_eq!(text, "1,000,000 rows  500,000 rows/s  25.0 MB/s");
        let text = work_text((3 << 20, 1 << 20), 9 << 20, Duration::from_secs(2));
        assert_eq!(text, "3.0 MiB read, 1.0 MiB written  0.5 MB/s  6 s left");
        assert!(!work_text((0, 0), 9, Duration::from_secs(2)).contains("left"));
    }

    #[test]
    fn nothing_done_yet_has_no_time_left() {
        assert_eq!(time_left(0, 100, Duration::from_secs(1)), None);
        assert_eq!(time_left(0, 0, Duration::from_secs(1)), None);
        assert_eq!(time_left(100, 50, Duration::from_secs(1)), Some(Duration::ZERO));
        assert!(!progress_text(Done::default(), Some(9), Duration::from_secs(1)).contains("left"));
    }
}
