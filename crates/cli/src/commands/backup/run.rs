//! What the actions of `lithe backup` do.

use std::io::{self, BufReader, StdinLock, Write};
use std::ops::ControlFlow;
use std::path::Path;

use lithedb::{
    BackupCheck, BackupInfo, BackupOptions, BackupRepository, BackupStream, Error, PruneReport,
    RestoreOptions, RestoredBackup,
};
use serde_json::{Value, json};

use super::trails::{self, Which, Wish};
use super::{Action, BackupArgs, BackupsFormat, RestorePlace};
use crate::args::Globals;
use crate::confirm::{Yes, confirm};
use crate::database::{Purpose, builder, close, exists, open_existing};
use crate::failure::{Failure, Outcome};
use crate::input::stdin;
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text, time_text};
use crate::output::{Notices, Surface, Table, stdout};
use crate::progress::Progress;

/// Bytes of a stream that are read at once.
const BUFFER_SIZE: usize = 256 << 10;

/// Does what was asked for.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &BackupArgs,
) -> Outcome {
    let at_work = AtWork { notices, interrupt, limit: args.limit };
    match &args.action {
        Action::Create { directory, to_stream, verify_shared } => {
            let directory = directory.as_deref().filter(|_| !to_stream);
            create(globals, &at_work, directory, *verify_shared)
        }
        Action::List { directory, format } => list(directory, *format),
        Action::Verify { directory, number } => verify(&at_work, directory, *number),
        Action::Restore { directory, number, place } => {
            let backups = BackupRepository::open(directory)?;
            let restored = at_work.watched(|options| {
                let how = how_to_restore(globals, place)?.options(options);
                Ok(backups.restore(*number, &place.target, how)?)
            })?;
            say_restored(notices, place, &restored);
            Ok(())
        }
        Action::Archive { directory, begin, end, log_max } => {
            let wish = match (begin, end) {
                (true, _) => Wish::Begin { log_max: *log_max },
                (_, true) => Wish::End,
                _ => Wish::Extend,
            };
            trails::archive(globals, &at_work, directory, wish)
        }
        Action::Trails { directory, format } => trails::list(directory, *format),
        Action::RestoreAt { directory, moment, trail, database, place } => {
            let which = Which { moment: *moment, trail: *trail, database: *database };
            trails::restore_at(globals, &at_work, directory, which, place)
        }
        Action::Remove { directory, number, yes } => {
            confirm(&format!("this removes backup {number}"), Yes(*yes))?;
            say_removed(notices, &BackupRepository::open(directory)?.remove(*number)?);
            Ok(())
        }
        Action::RemoveTrail { directory, trail, yes } => {
            confirm(&format!("this removes trail {trail:016x}"), Yes(*yes))?;
            BackupRepository::open(directory)?.remove_trail(*trail)?;
            notices.say(format!("removed trail {trail:016x}"));
            Ok(())
        }
        Action::Prune { directory, keep, yes } => prune(notices, directory, keep.get(), Yes(*yes)),
        Action::Export { directory, number } => {
            let backups = BackupRepository::open(directory)?;
            let mut out = stream_out()?;
            at_work.watched(|options| Ok(backups.export(*number, &mut out, options)?))?;
            Ok(())
        }
        Action::Import { directory } => {
            let backups = BackupRepository::open_or_create(directory)?;
            let stream = stream_in()?;
            let info = at_work.watched(|options| Ok(backups.import(stream, options)?))?;
            notices.say(format!("added backup {}: {}", info.number, sizes_text(&info)));
            Ok(())
        }
        Action::RestoreStream { place } => {
            let stream = stream_in()?;
            let restored = at_work.watched(|options| {
                let how = how_to_restore(globals, place)?.options(options);
                Ok(stream.restore(&place.target, how)?)
            })?;
            say_restored(notices, place, &restored);
            Ok(())
        }
        Action::VerifyStream => {
            let stream = stream_in()?;
            let info = at_work.watched(|options| Ok(stream.verify(options)?))?;
            let (files, bytes) = (count_text(info.files), bytes_text(info.bytes));
            notices.say(format!("ok: {files} files, {bytes}, as of {}", info.seqno));
            Ok(())
        }
    }
}

/// How work is done that may take long.
pub(super) struct AtWork<'a> {
    pub notices: Notices,
    interrupt: &'a Interrupt,
    limit: Option<u64>,
}

impl AtWork<'_> {
    /// Does it, with a bar, until Ctrl-C is pressed.
    pub fn watched<T>(
        &self,
        work: impl FnOnce(BackupOptions<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.interrupt.graceful();
        let mut progress = Progress::start(self.notices, None);
        let options = BackupOptions::new().go_on_while(|so_far| {
            let left = so_far.all_bytes.saturating_sub(so_far.bytes);
            progress.update_work((so_far.bytes, so_far.bytes), left);
            match self.interrupt.is_raised() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let options = match self.limit {
            Some(limit) => options.bytes_per_second(limit),
            None => options,
        };
        let done = work(options);
        progress.finish();
        match done {
            Err(Failure::Store(Error::Io { source, .. }))
                if source.kind() == io::ErrorKind::Interrupted && self.interrupt.is_raised() =>
            {
                Err(Failure::Interrupted)
            }
            done => done,
        }
    }
}

fn create(
    globals: &Globals,
    at_work: &AtWork<'_>,
    directory: Option<&Path>,
    verify_shared: bool,
) -> Outcome {
    let Some(directory) = directory else {
        let mut out = stream_out()?;
        let db = open_existing(globals)?;
        let sent = at_work.watched(|options| Ok(db.backup_to(&mut out, options)?))?;
        let (files, bytes) = (count_text(sent.files), bytes_text(sent.bytes));
        at_work.notices.say(format!("{files} files, {bytes}, as of {}", sent.seqno));
        return close(&db);
    };
    let db = open_existing(globals)?;
    let backups = BackupRepository::open_or_create(directory)?;
    let info = at_work.watched(|options| {
        let options = if verify_shared { options.verify_shared() } else { options };
        Ok(backups.create_with(&db, options)?)
    })?;
    at_work.notices.say(format!("made backup {}: {}", info.number, sizes_text(&info)));
    close(&db)
}

fn list(directory: &Path, format: BackupsFormat) -> Outcome {
    let backups = BackupRepository::open(directory)?.list()?;
    let mut out = stdout();
    match format {
        BackupsFormat::Table => write!(out, "{}", table_of(&backups))?,
        BackupsFormat::Jsonl => {
            backups.iter().try_for_each(|info| writeln!(out, "{}", json_of(info)))?;
        }
    }
    Ok(out.flush()?)
}

fn verify(at_work: &AtWork<'_>, directory: &Path, number: Option<u64>) -> Outcome {
    let backups = BackupRepository::open(directory)?;
    let check = at_work.watched(|options| Ok(backups.verify(number, options)?))?;
    let mut out = stdout();
    for problem in &check.problems {
        let (file, numbers) = (problem.file.display(), numbers_text(&problem.backups));
        writeln!(out, "{file}: {} (of {numbers})", problem.what)?;
    }
    for problem in &check.trail_problems {
        let (file, trail) = (problem.file.display(), problem.trail);
        let (what, behind) = (&problem.what, problem.behind);
        writeln!(out, "{file}: {what} (of trail {trail:016x}, behind {behind})")?;
    }
    // One that was interrupted leaves such, too; but then there is nothing to restore either.
    let is_lost = check.backups == 0 && check.files_unlisted > 0;
    let unlisted = count_text(check.files_unlisted);
    if is_lost {
        let directory = directory.display();
        let what = "and no list of a backup: nothing of them can be restored";
        writeln!(out, "{directory}: there are {unlisted} files of backups, {what}")?;
    } else if check.files_unlisted > 0 {
        let why = "`backup prune` removes what was interrupted, unless the list of one was lost";
        at_work.notices.say(format!("{unlisted} files are of no backup: {why}"));
    }
    out.flush()?;
    if !check.is_ok() || is_lost {
        let problems = check.problems.len() + check.trail_problems.len();
        let file_count = problems + usize::from(is_lost);
        return Err(Failure::DamagedBackups { file_count });
    }
    at_work.notices.say(checked_text(&check));
    Ok(())
}

pub(super) fn how_to_restore(
    globals: &Globals,
    place: &RestorePlace,
) -> Result<RestoreOptions<'static>, Failure> {
    if place.replace && exists(&place.target)? {
        let target = place.target.display();
        confirm(&format!("this removes the database that is in {target}"), Yes(place.yes))?;
    }
    let options = RestoreOptions::new();
    let options = if place.replace { options.replace() } else { options };
    Ok(match place.check {
        true => options.open_with(builder(globals, Purpose::Change)?),
        false => options,
    })
}

pub(super) fn say_restored(notices: Notices, place: &RestorePlace, restored: &RestoredBackup) {
    let (target, seqno) = (place.target.display(), restored.seqno);
    notices.say(format!("restored to {target}, as of {seqno}"));
    if let Some(rest) = &restored.left_behind {
        notices
            .say(format!("what is left of the database that was there is at {}", rest.display()));
    }
}

fn prune(notices: Notices, directory: &Path, keep: usize, yes: Yes) -> Outcome {
    confirm(&format!("this removes all backups but the newest {keep} of each database"), yes)?;
    say_removed(notices, &BackupRepository::open(directory)?.prune(keep)?);
    Ok(())
}

fn say_removed(notices: Notices, report: &PruneReport) {
    let (backups, files) = (count_text(report.backups), count_text(report.files));
    let bytes = bytes_text(report.bytes);
    let of_trails = match report.segments {
        0 => String::new(),
        count => {
            let bytes = bytes_text(report.segment_bytes);
            format!("; {} segments of trails, {bytes}", count_text(count))
        }
    };
    notices.say(format!("removed {backups} backups, {files} files, {bytes}{of_trails}"));
}

/// Standard output, for bytes that no terminal should get.
fn stream_out() -> Result<impl Write, Failure> {
    if Surface::of_stdout() == Surface::Terminal {
        return Err(Failure::usage("a backup is not for a terminal: write it to a file or a pipe"));
    }
    Ok(stdout())
}

fn stream_in() -> Result<BackupStream<BufReader<StdinLock<'static>>>, Failure> {
    let input = BufReader::with_capacity(BUFFER_SIZE, stdin()?);
    Ok(BackupStream::open(input)?)
}

/// `backups 1, 2, 3`.
fn numbers_text(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    match &numbers[..] {
        [number] => format!("backup {number}"),
        numbers => format!("backups {}", numbers.join(", ")),
    }
}

fn checked_text(check: &BackupCheck) -> String {
    let (backups, files) = (count_text(check.backups), count_text(check.files));
    format!("ok: {backups} backups, {files} files, {}", bytes_text(check.bytes))
}

/// `120 files, 3.4 GiB, 2.1 MiB of them new`.
pub(super) fn sizes_text(info: &BackupInfo) -> String {
    let (files, bytes) = (count_text(info.files), bytes_text(info.bytes));
    format!("{files} files, {bytes}, {} of them new", bytes_text(info.written_bytes))
}

fn table_of(backups: &[BackupInfo]) -> Table {
    let mut table = Table::new(&[">number", "made", "database", ">files", ">size", ">new"]);
    for info in backups {
        table.row([
            info.number.to_string(),
            time_text(info.created()),
            format!("{:016x}", info.database),
            count_text(info.files),
            bytes_text(info.bytes),
            bytes_text(info.written_bytes),
        ]);
    }
    table
}

fn json_of(info: &BackupInfo) -> Value {
    json!({
        "number": info.number,
        "created": time_text(info.created()),
        "database": format!("{:016x}", info.database),
        "stamp": info.seqno.as_u64(),
        "files": info.files,
        "bytes": info.bytes,
        "written_bytes": info.written_bytes,
        "trail": info.trail.map(|id| format!("{id:016x}")),
        "as_of": info.as_of.as_u64(),
    })
}
