//! `lithe backup archive`, `trails`, `restore-at`: what comes between backups.

use std::io::Write;
use std::path::Path;

use lithedb::{BackupRepository, Error, PointInTime, SeqNo, TrailInfo, TrailOptions, TrailReport};
use serde_json::{Value, json};

use super::run::{AtWork, how_to_restore, say_restored, sizes_text};
use super::{BackupsFormat, RestorePlace};
use crate::args::Globals;
use crate::database::{Purpose, builder, close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::notation::{bytes_text, count_text, parse_moment, time_text};
use crate::output::{Table, stdout};

/// The moment that is to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The last one that the trail has.
    Latest,
    /// This.
    At(PointInTime),
}

/// As [`parse_moment`], or `latest`.
pub fn parse_trail_moment(text: &str) -> Result<Moment, String> {
    match text {
        "latest" => Ok(Moment::Latest),
        text => parse_moment(text).map(Moment::At),
    }
}

/// An id as it is printed.
pub fn parse_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| format!("no id: {text:?}; one has 16 digits"))
}

/// What is to become of the trail.
#[derive(Clone, Copy, Debug)]
pub enum Wish {
    /// One is to follow.
    Begin {
        /// Bytes of log that are kept for it, at most.
        log_max: Option<u64>,
    },
    /// It is to have what has come.
    Extend,
    /// That, and nothing more.
    End,
}

/// Which moment, of what.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    /// The moment.
    pub moment: Moment,
    /// The id of the trail, if that is to be one.
    pub trail: Option<u64>,
    /// That of the database.
    pub database: Option<u64>,
}

/// Begins a trail, adds to it, or ends it.
pub fn archive(globals: &Globals, at_work: &AtWork<'_>, directory: &Path, wish: Wish) -> Outcome {
    let db = open_existing(globals)?;
    if let Wish::Begin { log_max } = wish {
        let backups = BackupRepository::open_or_create(directory)?;
        let info = at_work.watched(|options| {
            let options = TrailOptions::new().backup(options);
            let options = match log_max {
                Some(bytes) => options.log_max(bytes),
                None => options,
            };
            Ok(backups.begin_trail(&db, options)?)
        })?;
        let (number, sizes) = (info.number, sizes_text(&info));
        let trail = info.trail.map(|id| format!(", of trail {id:016x}")).unwrap_or_default();
        at_work.notices.say(format!("made backup {number}{trail}: {sizes}"));
        return close(&db);
    }
    let extended = BackupRepository::open(directory)?.extend_trail(&db);
    match (extended, wish) {
        (Err(Error::TrailEnded { .. }), Wish::End) => {} // Nothing more comes to it as it is.
        (extended, _) => say_added(at_work, &extended?),
    }
    if matches!(wish, Wish::End) {
        db.end_trail()?;
    }
    close(&db)
}

fn say_added(at_work: &AtWork<'_>, report: &TrailReport) {
    let (commits, to) = (count_text(report.commits), report.to);
    at_work.notices.say(format!("added {commits} commits: all up to {to}"));
    if let Some(end) = report.end {
        let why = end.reason;
        at_work.notices.say(format!("the trail ends there: {why}; `--begin` begins another one"));
    }
}

/// Lists trails.
pub fn list(directory: &Path, format: BackupsFormat) -> Outcome {
    let trails = BackupRepository::open(directory)?.trails()?;
    let mut out = stdout();
    match format {
        BackupsFormat::Table => write!(out, "{}", table_of(&trails))?,
        BackupsFormat::Jsonl => {
            trails.iter().try_for_each(|info| writeln!(out, "{}", json_of(info)))?;
        }
    }
    Ok(out.flush()?)
}

/// Restores a moment.
pub fn restore_at(
    globals: &Globals,
    at_work: &AtWork<'_>,
    directory: &Path,
    which: Which,
    place: &RestorePlace,
) -> Outcome {
    let backups = BackupRepository::open(directory)?;
    let moment = match which.moment {
        Moment::At(moment) => moment,
        Moment::Latest => PointInTime::Stamp(latest_of(&backups.trails()?, which)?),
    };
    let restored = at_work.watched(|options| {
        let how = how_to_restore(globals, place)?;
        let how = how.go_on_with(builder(globals, Purpose::Change)?);
        let how = match which.trail {
            Some(id) => how.trail(id),
            None => how,
        };
        let how = match which.database {
            Some(id) => how.database(id),
            None => how,
        };
        Ok(backups.restore_at(moment, &place.target, how.options(options))?)
    })?;
    say_restored(at_work.notices, place, &restored);
    let commits = count_text(restored.commits);
    let from = restored.backup.map(|number| format!(" behind backup {number}"));
    at_work.notices.say(format!("{commits} commits{} done again", from.unwrap_or_default()));
    Ok(())
}

/// The last moment of the trails that are meant.
fn latest_of(trails: &[TrailInfo], which: Which) -> Result<SeqNo, Failure> {
    let is_meant = |info: &&TrailInfo| {
        which.trail.is_none_or(|id| id == info.trail)
            && which.database.is_none_or(|id| id == info.database)
            && info.restorable_from.is_some()
    };
    let latest = trails.iter().filter(is_meant).map(|info| info.to).max();
    latest.ok_or_else(|| Failure::usage("there is no such trail with a backup on it"))
}

fn table_of(trails: &[TrailInfo]) -> Table {
    let titles = ["trail", "database", "from", "to", ">backups", ">commits", ">size", "end"];
    let mut table = Table::new(&titles);
    for info in trails {
        let from = info.restorable_from.map_or_else(|| "-".to_owned(), |from| from.to_string());
        table.row([
            format!("{:016x}", info.trail),
            format!("{:016x}", info.database),
            from,
            info.to.to_string(),
            count_text(info.backups.len() as u64),
            count_text(info.commits),
            bytes_text(info.bytes),
            info.end.map_or_else(String::new, |end| end.to_string()),
        ]);
    }
    table
}

fn json_of(info: &TrailInfo) -> Value {
    json!({
        "trail": format!("{:016x}", info.trail),
        "database": format!("{:016x}", info.database),
        "restorable_from": info.restorable_from.map(SeqNo::as_u64),
        "to": info.to.as_u64(),
        "to_time": time_text(info.to_time()),
        "end": info.end.map(|end| end.to_string()),
        "backups": info.backups,
        "commits": info.commits,
        "segments": info.segments,
        "bytes": info.bytes,
    })
}
