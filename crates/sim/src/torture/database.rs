//! One database, struck again and again.
//!
//! A round: a child is sent, struck at the moment that was drawn, and what it has said is the
//! history up to there. The database is then opened by the next child, which says what it finds, or
//! in this process, or both; what is found is judged, and a new history begins with it. An opening
//! that was struck before it said what it found begins none: what it did was recovery.

use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use lithedb::base::{Clock, SystemClock};

use super::child::{Care, Errand, Mistake, setup_of};
use super::disk::Cut;
use super::ground::Ground;
use super::moment::Moment;
use super::records::Record;
use super::victim::{Heard, Transcript, Victim};
use super::{Campaign, Copies, Honesty};
use crate::checkpoints::Checkpoint;
use crate::diet::Diet;
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::ops::Farewell;
use crate::random::{Random, seed_of};
use crate::readback::timeline_of;
use crate::setup::Setup;
use crate::timeline::{Found, Moment as Prefix, Survival, Timeline, Told};

/// Count of rounds, in the ledger.
pub const ROUNDS: &str = "rounds";
/// Count of children that were killed.
pub const KILLS: &str = "kills";
/// Count of cuts of the power.
pub const POWER_CUTS: &str = "power cuts";

/// Numbers of option sets that databases choose from.
const SETUP_COUNT: u64 = 4096;
/// So many rounds in a thousand end with an opening in this process; the others leave it to the
/// next child.
const VERIFIED_PER_MILLE: u64 = 400;
/// So many children in a thousand have the database check itself.
const CHECKS_PER_MILLE: u64 = 150;
/// A child that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// On a disk things take so many times longer.
const SLOWNESS_OF_DISKS: u64 = 8;
/// A child goes on for so many microseconds at most when the power is gone: its calls fail.
const BEHIND_CUT_MAX: u64 = 3_000;
/// What the system says of each call then.
const GONE: [&str; 2] = ["Input/output error", "Read-only file system"];
/// Where this code is, as panics say it: the tool's own, and not the store's.
const OWN_CODE: &str = "crates/sim/";
/// Openings of a round at most: by a child, and twice by the parent.
const OPENINGS_PER_ROUND: u64 = 3;
/// Diets, each as often as it is here. The one with a checkpoint open beside is for the simulation:
/// a child has one database.
const DIETS: [Diet; 12] = [
    Diet::Everything,
    Diet::Everything,
    Diet::Everything,
    Diet::Everything,
    Diet::Everything,
    Diet::Everything,
    Diet::Ingests,
    Diet::Tables,
    Diet::Conversions,
    Diet::Indexes,
    Diet::Builds,
    Diet::Encryption,
];

/// What a child is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was heard of it.
    Starting,
    /// It opens, and recovers.
    Opening,
    /// It does what it was sent for.
    Working,
    /// It closes.
    Closing,
    /// It has said that it has come to its end.
    Ended,
}

impl Phase {
    fn counted(self) -> &'static str {
        match self {
            Phase::Starting => "struck while they started",
            Phase::Opening => "struck while they opened or recovered",
            Phase::Working => "struck while they worked",
            Phase::Closing => "struck while they closed",
            Phase::Ended => "struck behind their end",
        }
    }
}

/// Why it does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// Something is wrong with the database.
    Found(Finding),
    /// Something is wrong with the tool's surroundings.
    Failed(io::Error),
}

impl From<Finding> for Stop {
    fn from(finding: Finding) -> Stop {
        Stop::Found(finding)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Failed(error)
    }
}

/// A database.
pub(super) struct Database<'c> {
    // Constant.
    campaign: &'c Campaign,
    pub(super) ledger: &'c Ledger,
    number: u64,
    setup_number: u64,
    diet: Diet,
    pub(super) setup: Setup,
    // Changed by rounds.
    pub(super) ground: Ground,
    /// For what depends on how far children came. What rounds do is drawn apart from it.
    pub(super) random: Random,
    /// The number of the last opening: they rise.
    pub(super) nth: u64,
    /// Since the last opening that said what it found.
    pub(super) timeline: Timeline,
    /// What has to be there of that.
    pub(super) survival: Survival,
    /// Checkpoints of earlier histories that nobody has looked at.
    pub(super) older: Vec<Checkpoint>,
    transcript: Transcript,
}

/// A child that goes about its errand.
struct Run {
    moment: Moment,
    phase: Phase,
    commits: u64,
    /// Whether the power is gone.
    is_cut: bool,
}

impl<'c> Database<'c> {
    /// The one of this number, not there yet.
    pub(super) fn new(
        campaign: &'c Campaign,
        ledger: &'c Ledger,
        number: u64,
        ground: Ground,
    ) -> Database<'c> {
        let mut random = Random::new(seed_of(&[campaign.seed, number, 0x7041]));
        let setup_number = random.below(SETUP_COUNT);
        let diet = random.pick(&DIETS);
        let setup = setup_of(setup_number, diet, &ground.db());
        ledger.count("databases");
        Database {
            campaign,
            ledger,
            number,
            setup_number,
            diet,
            setup,
            ground,
            random,
            nth: 0,
            timeline: Timeline::new(),
            survival: Survival::Acknowledged,
            older: Vec::new(),
            transcript: Transcript::default(),
        }
    }

    /// So many rounds, fewer if it is stopped, and a look behind the last.
    pub(super) fn rounds(&mut self, count: u64, stop: &dyn Fn() -> bool) -> Result<(), Stop> {
        let mut is_looked_at = true;
        for round in 0..count {
            if stop() {
                break;
            }
            let seed = seed_of(&[self.campaign.seed, self.number, round, 0x70D1]);
            let mut drawn = Random::new(seed);
            self.nth = round * OPENINGS_PER_ROUND;
            self.round(&mut drawn)?;
            self.ledger.count(ROUNDS);
            if self.campaign.copies == Copies::Kept {
                self.ground.copy()?;
            }
            is_looked_at = drawn.chance(VERIFIED_PER_MILLE);
            if is_looked_at {
                self.look()?;
            }
        }
        if is_looked_at { Ok(()) } else { self.look() }
    }

    /// Opens it here, and looks at everything.
    fn look(&mut self) -> Result<(), Stop> {
        self.transcript.add("opened by the parent".to_owned());
        self.verify()?;
        self.ground.sweep()?;
        Ok(())
    }

    /// Removes it.
    pub(super) fn remove(self) -> io::Result<()> {
        self.ground.remove()
    }

    /// Where it stays when it is kept.
    pub(super) fn place(&self) -> String {
        self.ground.side().display().to_string()
    }

    /// Leaves it as it is, with the story beside it.
    pub(super) fn keep(&mut self, finding: &Finding) -> io::Result<()> {
        let Database { setup_number, diet, survival, .. } = self;
        let story = [
            finding.to_string(),
            format!("option set {setup_number}, {diet:?}, {survival:?}, {:?}", self.setup),
        ];
        self.ground.write("story.txt", story.iter())?;
        self.ground.write("records.txt", self.transcript.lines())?;
        self.ground.leave()
    }

    fn round(&mut self, drawn: &mut Random) -> Result<(), Stop> {
        let slowness = if self.ground.has_disk() { SLOWNESS_OF_DISKS } else { 1 };
        let moment = Moment::draw(drawn, slowness);
        let errand = self.draw_errand(moment, drawn);
        self.transcript.begin(&errand);
        self.transcript.add(format!("to be struck: {moment:?}"));
        let Campaign { program, child_subcommand, .. } = self.campaign;
        let complaints = self.ground.complaints()?;
        let called = (program.as_path(), *child_subcommand);
        let mut victim = Victim::start(called, &errand, complaints)?;
        let mut run = Run { moment, phase: Phase::Starting, commits: 0, is_cut: false };
        let is_gone = self.follow(&victim, &mut run)?;
        if self.ground.has_disk() {
            self.cut(&mut run)?;
        }
        let status = if is_gone { victim.wait()? } else { self.kill(&mut victim, &mut run)? };
        drop(victim);
        self.transcript.add(format!("{status}"));
        self.expect_fair_end(status, &run)?;
        let is_killed = status.signal() == Some(9);
        self.ledger.count(match is_killed || run.is_cut {
            true => run.phase.counted(),
            false => "ended before they were struck",
        });
        if is_killed {
            self.ledger.count(KILLS);
        }
        self.ground.recover()?;
        Ok(())
    }

    /// A child was killed, or has come to its end, or to that of its disk; and none of its threads
    /// has panicked (Q4).
    fn expect_fair_end(&self, status: ExitStatus, run: &Run) -> Result<(), Stop> {
        if let Some(panic) = self.ground.panic_of_child()? {
            let what = format!("a thread of a child {panic}");
            return Err(Finding::new(Fault::Panic, what).into());
        }
        let is_killed = status.signal() == Some(9);
        if is_killed || (status.success() && (run.phase == Phase::Ended || run.is_cut)) {
            return Ok(());
        }
        let what = format!("a child ended by itself: {status}");
        Err(Finding::new(Fault::Panic, what).into())
    }

    fn draw_errand(&mut self, moment: Moment, drawn: &mut Random) -> Errand {
        let planted = self.campaign.honesty == Honesty::Planted;
        self.nth += 1;
        Errand {
            path: self.ground.db(),
            setup: self.setup_number,
            diet: self.diet,
            nth: self.nth,
            seed: drawn.draw(),
            op_count: moment.op_count(drawn),
            farewell: if drawn.chance(600) { Farewell::Close } else { Farewell::Drop },
            care: if drawn.chance(CHECKS_PER_MILLE) { Care::Checks } else { Care::None },
            mistake: match (planted, self.ground.has_disk()) {
                (false, _) => Mistake::None,
                (true, false) => Mistake::DropsCommits,
                (true, true) => Mistake::AcknowledgesEarly,
            },
        }
    }

    /// Listens until the moment has come; whether the child has gone before.
    fn follow(&mut self, victim: &Victim, run: &mut Run) -> Result<bool, Stop> {
        let clock = SystemClock::new();
        let mut due = None;
        loop {
            let now = clock.monotonic();
            due = due.or_else(|| Some(now + run.moment.comes_after(run.phase, run.commits)?));
            let left = due.map_or(SILENCE_MAX, |due| due.saturating_sub(now));
            if left.is_zero() {
                return Ok(false);
            }
            match victim.hear(left) {
                Heard::Record(record) => self.hear(record, run)?,
                Heard::End => return Ok(true),
                Heard::Nothing if due.is_some() => return Ok(false),
                Heard::Nothing => {
                    let what = format!("a child said nothing for {SILENCE_MAX:?}");
                    return Err(Finding::new(Fault::Excess, what).into());
                }
            }
        }
    }

    /// Cuts the power. What is read from here on is acknowledged too late to be counted.
    fn cut(&mut self, run: &mut Run) -> io::Result<()> {
        let cut = self.ground.cut(&mut self.random)?;
        run.is_cut = true;
        self.survival = Survival::Durable;
        self.timeline.note_cut();
        self.transcript.add(format!("cut: {cut:?}"));
        self.ledger.count(POWER_CUTS);
        self.ledger.count(match cut {
            Some(Cut::AllWritten) => "power cuts, all written (flag 0)",
            Some(Cut::JournalWritten) => "power cuts, the journal written (flag 1)",
            _ => "power cuts, nothing written (flag 2)",
        });
        if self.random.chance(500) {
            let pause = Duration::from_micros(self.random.below(BEHIND_CUT_MAX));
            SystemClock::new().sleep(pause);
        }
        Ok(())
    }

    fn kill(&mut self, victim: &mut Victim, run: &mut Run) -> Result<ExitStatus, Stop> {
        let (status, rest) = victim.end()?;
        for record in rest {
            self.hear(record, run)?;
        }
        Ok(status)
    }

    /// A record was read.
    fn hear(&mut self, record: Option<Record>, run: &mut Run) -> Result<(), Stop> {
        let Some(record) = record else {
            return Err(Finding::new(Fault::Wrong, "a child said what is no record").into());
        };
        self.transcript.note(&record);
        match record {
            Record::Opening => run.phase = Phase::Opening,
            Record::Found(found) => {
                run.phase = Phase::Working;
                let judged = self.judge(&found);
                judged.map_err(|finding| finding.at("what a child found"))?;
                self.ledger.count("openings of children that were judged");
                self.settle(*found);
                if run.is_cut {
                    self.survival = Survival::Durable;
                    self.timeline.note_cut();
                }
            }
            Record::Told(told) => {
                if let Told::Acknowledged(..) = told {
                    run.commits += 1;
                    self.ledger.count("commits acknowledged");
                }
                self.timeline.hear(told);
            }
            Record::Refused(_) | Record::NoRoom(_) if run.is_cut => {
                self.ledger.count("errors told behind a cut");
            }
            Record::Refused(what) => return Err(Finding::new(Fault::Refused, what).into()),
            Record::NoRoom(what) => {
                return Err(io::Error::new(ErrorKind::StorageFull, what).into());
            }
            Record::Wrong(finding) if run.is_cut && is_for_want_of_a_disk(&finding) => {
                self.ledger.count("errors told behind a cut");
            }
            Record::Wrong(finding) => return Err(finding.into()),
            Record::Closing => run.phase = Phase::Closing,
            Record::Ended => run.phase = Phase::Ended,
        }
        Ok(())
    }

    /// Which moment of the history this is.
    pub(super) fn judge(&self, found: &Found) -> Verdict<Prefix> {
        let prefix = self.timeline.judge(found, self.survival)?;
        if self.timeline.is_in_doubt() {
            self.ledger.count(match prefix.is_last_issued {
                true => "commits under way that were there",
                false => "commits under way that were not there",
            });
        }
        Ok(prefix)
    }

    /// A new history begins with what was found.
    pub(super) fn settle(&mut self, found: Found) {
        let mut checkpoints = std::mem::take(&mut self.timeline.checkpoints);
        for checkpoint in &mut checkpoints {
            checkpoint.commit = None; // It counts commits of the history that has ended.
        }
        self.older.append(&mut checkpoints);
        // Which key it has is not found by reading; it goes on to have it.
        let keys = self.timeline.keys.take();
        self.timeline = timeline_of(found);
        self.timeline.keys = keys;
        self.survival = Survival::Acknowledged;
    }
}

/// Whether a child has found this because it could not read or write any more: no problem of the
/// database. That it panics is one.
fn is_for_want_of_a_disk(finding: &Finding) -> bool {
    match finding.fault {
        Fault::CheckFailed | Fault::Refused => true,
        Fault::Panic => finding.what.contains(OWN_CODE),
        _ => GONE.iter().any(|gone| finding.what.contains(gone)),
    }
}
