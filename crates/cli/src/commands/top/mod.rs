//! `lithe top`: a database at work, as it is now and again after each interval.

mod sample;
mod screen;
mod served;
mod source;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lithedb::base::{Clock, SystemClock};

use crate::args::Globals;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::parse_duration;
use crate::output::{json_line, stdout, terminal_size};
use sample::{Sample, Span, json_of};
use screen::{Event, Screen};
use source::Source;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe top
  lithe --db my.lithe top --interval 5s
  lithe --db my.lithe top --once
  lithe --db my.lithe top --json --count 60 > minute.ndjson
  lithe top --url http://127.0.0.1:8080
  lithe top --url https://db.example:8443 --tls-roots ca.pem --token-file token

The database is read beside the program that has it open; within the shell it is the shell's own.
Beside a program, commits and bytes are those that its log has got; lookups, waits and memory are
known only to itself. `read probe` is how long a lookup takes that `top` does itself. `now` is the
last interval. q ends it.

With --url it is the database of a server (`lithe serve`), with what the server counts of requests:
its token needs the verb `stats` for `*`.";

/// As short as an interval may be.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// What there is when nobody says.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Between two looks at Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Options of `lithe top`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Time between two samples, as in 500ms, 2s [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,

    /// Print one sample, of one interval, and end
    #[arg(long)]
    pub once: bool,

    /// Print samples as objects, one a line
    #[arg(long)]
    pub json: bool,

    /// End after so many samples
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,

    /// A server, as http://HOST:PORT, https://HOST:PORT or unix:PATH, in place of a database
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    /// File whose first line is a token of the server; for its owner alone
    #[arg(long, value_name = "FILE", requires = "url")]
    pub token_file: Option<PathBuf>,

    /// Certificates that the server's is signed by, as PEM
    #[arg(long, value_name = "FILE", requires = "url")]
    pub tls_roots: Option<PathBuf>,

    /// The name that the server's certificate has, if it is not that of the URL
    #[arg(long, value_name = "NAME", requires = "url")]
    pub tls_name: Option<String>,

    /// A certificate to show the server, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["url", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// The key of that certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

/// Shows it.
pub fn run(globals: &Globals, interrupt: &Interrupt, args: &TopArgs) -> Outcome {
    let interval = args.interval.or_else(|| globals.settings.duration("top.interval"));
    let interval = interval.unwrap_or(INTERVAL_DEFAULT).max(INTERVAL_MIN);
    let is_live = !args.once && !args.json;
    if is_live && !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return Err(Failure::usage("this is no terminal: use --once or --json"));
    }
    let mut source = match &args.url {
        Some(url) => served::open(globals, url, args)?,
        None => source::open(globals)?,
    };
    let clock = SystemClock::new();
    let count = if args.once { 1 } else { args.count.unwrap_or(u64::MAX) };
    let watch = Watch { clock: &clock, interrupt, interval, count };
    match is_live {
        true => watch.live(source.as_mut()),
        false => watch.printed(source.as_mut(), args.json),
    }
}

/// How samples are taken.
struct Watch<'a> {
    clock: &'a SystemClock,
    interrupt: &'a Interrupt,
    interval: Duration,
    count: u64,
}

impl Watch<'_> {
    fn sample(&self, source: &mut dyn Source) -> Result<Sample, Failure> {
        let mut sample = source.sample(self.clock)?;
        sample.at = self.clock.monotonic();
        Ok(sample)
    }

    /// Prints samples one after the other.
    fn printed(&self, source: &mut dyn Source, is_json: bool) -> Outcome {
        let mut before = self.sample(source)?;
        for _ in 0..self.count {
            if !self.wait() {
                return Err(Failure::Interrupted);
            }
            let sample = self.sample(source)?;
            let span = Span { before: &before, now: &sample };
            let mut out = stdout();
            match is_json {
                true => writeln!(out, "{}", json_line(&json_of(&source.name(), span)))?,
                false => {
                    for line in view::lines(&source.name(), span, self.interval) {
                        writeln!(out, "{line}")?;
                    }
                }
            }
            out.flush()?;
            before = sample;
        }
        Ok(())
    }

    /// Sleeps for an interval; `false` when Ctrl-C was pressed.
    fn wait(&self) -> bool {
        let until = self.clock.monotonic() + self.interval;
        loop {
            if self.interrupt.is_cancelled() {
                return false;
            }
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Draws samples in place of each other, until `q` or Ctrl-C is pressed.
    fn live(&self, source: &mut dyn Source) -> Outcome {
        self.interrupt.graceful();
        let mut before = self.sample(source)?;
        let mut now = before.clone();
        let mut screen = Screen::enter()?;
        for _ in 0..self.count {
            let until = self.clock.monotonic() + self.interval;
            let mut drawn = None;
            loop {
                let size = terminal_size();
                if drawn != Some(size) {
                    let span = Span { before: &before, now: &now };
                    let lines = view::lines(&source.name(), span, self.interval);
                    screen.draw(&lines, size)?;
                    drawn = Some(size);
                }
                let left = until.saturating_sub(self.clock.monotonic());
                if self.interrupt.is_raised() {
                    return Ok(());
                }
                if left.is_zero() {
                    break;
                }
                match screen.wait_for_key(left.min(LOOK_EVERY))? {
                    Event::Key(b'q' | b'Q') | Event::End => return Ok(()),
                    Event::Key(_) | Event::Nothing => {}
                }
            }
            before = now;
            now = self.sample(source)?;
        }
        Ok(())
    }
}
