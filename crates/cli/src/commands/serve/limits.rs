//! Limits of the server, as options and as settings: one table of both.

use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use lithe_server::Limits;

use crate::config::{SETTINGS, Setting, Settings, checked};
use crate::failure::{Failure, Outcome};
use crate::notation::{parse_duration, parse_size};

/// Times are at most so long, so that all of them can be added to the time that it is.
const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A limit that can be set.
struct Limit {
    option: &'static str,
    help: &'static str,
    to: To,
}

/// What a value becomes.
#[derive(Clone, Copy)]
enum To {
    Size(fn(&mut Limits, u64)),
    Count(fn(&mut Limits, usize)),
    Time(fn(&mut Limits, Duration)),
}

macro_rules! limits {
    ($($option:literal $to:ident($value:ident) $field:ident = $is:expr, $help:literal;)*) => {
        const LIMITS: &[Limit] = &[$(Limit {
            option: $option,
            help: $help,
            to: To::$to(|limits, $value| limits.$field = $is),
        },)*];
    };
}

limits! {
    "connections" Count(count) connections = count, "Connections at a time";
    "blocking-requests" Count(count) blocking_requests = count,
        "Requests at work that take a thread of their own: scans, backups, large batches";
    "slow-commands" Count(count) slow_commands = count,
        "Commands of the Redis protocol at work that may take long; others wait";
    "body-size" Size(size) body_size = size,
        "Size of a body, or of an argument of the Redis protocol";
    "key-size" Size(size) key_size = usize_of(size), "Size of a key";
    "value-size" Size(size) value_size = size, "Size of a value";
    "batch-count" Count(count) batch_count = count,
        "Operations of a batch or transaction, and arguments of a Redis command";
    "page-count" Count(count) page_count = count, "Keys of a page of a scan";
    "scan-time" Time(time) scan_time = time, "How long one request may scan";
    "snapshots" Count(count) snapshots = count, "Snapshots that are held over HTTP";
    "snapshots-per-token" Count(count) snapshots_per_token = count,
        "Of these, with tokens of one name";
    "snapshot-time" Time(time) snapshot_time = time, "How long one is held after it was last used";
    "idempotency-time" Time(time) idempotency_time = time,
        "How long a write with an Idempotency-Key is remembered";
    "feeds" Count(count) feeds = count, "Feeds that are followed";
    "idle-time" Time(time) idle = time, "How long a connection without a request stays open";
    "output-size" Size(size) output_size = usize_of(size),
        "Size of an answer of the Redis protocol";
    "redis-memory" Size(size) redis_memory = size,
        "What all clients of the Redis protocol together have in memory, where large";
    "pipeline-count" Count(count) pipeline_count = count,
        "Commands of one client that are done before their answers are sent";
    "wrong-tokens" Count(count) wrong_tokens_a_minute = u32_of(count),
        "Wrong tokens of an address in a minute, before it is told to wait";
    "drain" Time(time) drain = time, "How long requests may take when it is drained";
}

fn usize_of(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn u32_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Limit {
    /// Its setting, which knows what the value is and what it is by default.
    fn setting(&self) -> &'static Setting {
        let name = self.option.replace('-', "_");
        let is_it = |setting: &&Setting| setting.name.strip_prefix("serve.") == Some(&name);
        let found = SETTINGS.iter().find(is_it);
        found.expect("every limit is a setting, which a test looks at")
    }

    fn argument(&self) -> Arg {
        let setting = self.setting();
        let value_name = match self.to {
            To::Size(_) => "SIZE",
            To::Count(_) => "COUNT",
            To::Time(_) => "DURATION",
        };
        Arg::new(self.option)
            .long(self.option)
            .value_name(value_name)
            .help(format!("{} [default: {}]", self.help, setting.default.unwrap_or("none")))
            .help_heading("Limits")
            .value_parser(move |text: &str| checked(setting, text))
    }

    fn set(&self, limits: &mut Limits, text: &str) -> Outcome {
        let wrong = |what: String| Failure::usage(format!("{}: {what}", self.setting().name));
        match self.to {
            To::Size(_) if text == "default" => {}
            To::Size(set) => set(limits, parse_size(text).map_err(wrong)?),
            To::Count(set) => {
                let count = text.parse().map_err(|_| wrong(format!("no number: {text:?}")))?;
                set(limits, count);
            }
            To::Time(set) => {
                let time = parse_duration(text).map_err(|error| wrong(error.to_string()))?;
                if time > TIME_MAX {
                    return Err(wrong(format!("{text} is too long")));
                }
                set(limits, time);
            }
        }
        Ok(())
    }
}

/// Those that the command line says.
#[derive(Clone, Debug, Default)]
pub struct LimitArgs(Vec<(&'static str, String)>);

impl LimitArgs {
    /// Sets them, and those that only the environment or the file with settings says.
    pub fn apply(&self, settings: &Settings, limits: &mut Limits) -> Outcome {
        for limit in LIMITS {
            let given = self.0.iter().find(|(option, _)| *option == limit.option);
            let text = given.map(|(_, text)| text.as_str());
            if let Some(text) = text.or_else(|| settings.value(limit.setting().name)) {
                limit.set(limits, text)?;
            }
        }
        Ok(())
    }
}

impl Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        command.args(LIMITS.iter().map(Limit::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        LimitArgs::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LimitArgs, clap::Error> {
        let given = |limit: &Limit| {
            let text = matches.get_one::<String>(limit.option)?;
            Some((limit.option, text.clone()))
        };
        Ok(LimitArgs(LIMITS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = LimitArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_settings_of_the_same_name_and_default() {
        let mut limits = Limits::default();
        for limit in LIMITS {
            let setting = limit.setting();
            let name = limit.option.replace('-', "_");
            assert_eq!(setting.name, format!("serve.{name}"));
            assert_eq!(setting.variables, [format!("LITHE_SERVE_{}", name.to_uppercase())]);
            limit.set(&mut limits, setting.default.unwrap()).unwrap();
        }
        assert_eq!(format!("{limits:?}"), format!("{:?}", Limits::default()));
        let names = SETTINGS.iter().map(|setting| setting.name);
        let names = names.filter(|name| name.starts_with("serve.") && *name != "serve.hosts");
        assert_eq!(names.count(), LIMITS.len());
        for limit in LIMITS {
            let other = match limit.to {
                To::Size(_) => "3KiB",
                To::Count(_) => "3",
                To::Time(_) => "3s",
            };
            let before = format!("{limits:?}");
            limit.set(&mut limits, other).unwrap();
            assert_ne!(before, format!("{limits:?}"), "{} sets something", limit.option);
        }
        let size = LIMITS.iter().find(|limit| matches!(limit.to, To::Size(_))).unwrap();
        assert!(size.set(&mut limits, "default").is_ok());
        let scan_time = LIMITS.iter().find(|limit| limit.option == "scan-time").unwrap();
        assert!(scan_time.set(&mut limits, "5000w").is_err());
    }

    #[test]
    fn the_command_line_goes_before_settings() {
        let said = LimitArgs(vec![("page-count", "7".to_owned())]);
        let mut limits = Limits::default();
        said.apply(&Settings::default(), &mut limits).unwrap();
        assert_eq!((limits.page_count, limits.feeds), (7, Limits::default().feeds));
    }
}
