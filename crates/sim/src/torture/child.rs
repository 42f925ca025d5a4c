//! A child: opens the database, does what the seed says, and tells of each step on the pipe.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lithedb::base::{Clock, SystemClock};
use lithedb::storage::{OsStorage, Storage};
use lithedb::{Background, Durability, Error};

use super::NoErrand;
use super::records::Record;
use crate::diet::Diet;
use crate::finding::Verdict;
use crate::ops::{Farewell, Mix, Op, Purpose};
use crate::parallel::survive;
use crate::random::Random;
use crate::readback::{Detail, expect_check_ok, read_all};
use crate::sample::ValueSizes;
use crate::session::{Session, SharedTimeline, Trouble, look};
use crate::setup::Setup;
use crate::timeline::{Change, Listener, Told, Until};

/// Of so many commits a child drops one, of one that does.
const DROPPED_ONE_IN: u64 = 5;
/// A lock that is let go is waited for: so often, and so long each time.
const LOCKED_TRIES: u32 = 400;
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

/// What is wrong with what a child says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Nothing.
    None,
    /// It acknowledges commits that it has not made.
    DropsCommits,
    /// It acknowledges commits as durable that it has not synced.
    AcknowledgesEarly,
}

/// Whether a child has the database check itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// It does, when it was opened.
    Checks,
    /// It goes on at once.
    None,
}

/// What a child is sent to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Errand {
    /// The database.
    pub path: PathBuf,
    /// The number of its option set.
    pub setup: u64,
    /// Which operations there are.
    pub diet: Diet,
    /// The how manieth opening this is.
    pub nth: u64,
    /// Decides the operations.
    pub seed: u64,
    /// How many there are, about.
    pub op_count: u64,
    /// How it ends.
    pub farewell: Farewell,
    /// How it begins.
    pub care: Care,
    /// What is planted.
    pub mistake: Mistake,
}

/// How a database with this option set is opened, by whomever.
pub(super) fn setup_of(number: u64, diet: Diet, path: &Path) -> Setup {
    let mut setup = diet.setup(Setup::numbered(number)).at(path);
    if number.is_multiple_of(2) {
        setup.background = Background::Threads;
    }
    setup
}

/// Opens, also if the database seems to be locked for a moment: while another worker of the parent
/// starts a child, that has everything open that the parent had, until it has become the program;
/// also the lock of a database that the parent has closed since.
pub(super) fn patiently<T>(mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..LOCKED_TRIES {
        match open() {
            Err(Error::Locked { .. }) => SystemClock::new().sleep(LOCKED_PAUSE),
            done => return done,
        }
    }
    open()
}

impl Errand {
    /// As arguments.
    pub(super) fn to_words(&self) -> Vec<OsString> {
        let diet = Diet::ALL.iter().position(|diet| *diet == self.diet);
        let mistake = match self.mistake {
            Mistake::None => 0,
            Mistake::DropsCommits => 1,
            Mistake::AcknowledgesEarly => 2,
        };
        let numbers = [
            self.setup,
            diet.unwrap_or_default() as u64,
            self.nth,
            self.seed,
            self.op_count,
            u64::from(self.farewell == Farewell::Close),
            u64::from(self.care == Care::Checks),
            mistake,
        ];
        let mut words = vec![self.path.clone().into_os_string()];
        words.extend(numbers.map(|number| number.to_string().into()));
        words
    }

    /// The same back.
    pub(super) fn from_words(words: &[OsString]) -> Option<Errand> {
        let (path, words) = words.split_first()?;
        let numbers: Option<Vec<u64>> =
            words.iter().map(|word| word.to_str()?.parse().ok()).collect();
        let numbers: [u64; 8] = numbers?.try_into().ok()?;
        let [setup, diet, nth, seed, op_count, closes, checks, mistake] = numbers;
        Some(Errand {
            path: path.into(),
            setup,
            diet: *Diet::ALL.get(diet as usize)?,
            nth,
            seed,
            op_count,
            farewell: if closes == 1 { Farewell::Close } else { Farewell::Drop },
            care: if checks == 1 { Care::Checks } else { Care::None },
            mistake: match mistake {
                0 => Mistake::None,
                1 => Mistake::DropsCommits,
                2 => Mistake::AcknowledgesEarly,
                _ => return None,
            },
        })
    }

    fn ops(&self) -> Vec<Op> {
        let mut random = Random::new(self.seed);
        let key_count = random.pick(&[12, 60, 160]);
        let sizes = random.pick(&[ValueSizes::Mixed, ValueSizes::Mixed, ValueSizes::Small]);
        let mix = Mix { key_count, sizes, purpose: Purpose::Writing };
        let mut ops = self.diet.draw(&mut random, mix, self.op_count as usize);
        ops.retain(|op| !matches!(op, Op::Beside(_)));
        ops
    }
}

/// Does what these arguments say, and tells of it on `pipe`.
///
/// # Errors
/// When they say nothing.
pub fn run_child(words: Vec<OsString>, pipe: Box<dyn Write + Send>) -> Result<(), NoErrand> {
    let Some(errand) = Errand::from_words(&words) else { return Err(NoErrand(words)) };
    let teller = Arc::new(Teller {
        mistake: errand.mistake,
        pipe: Mutex::new(pipe),
        last: Mutex::new(None),
        commits: AtomicU64::new(0),
        is_deaf: AtomicBool::new(false),
    });
    match survive(|| carry_out(&errand, &teller)) {
        Ok(Ok(())) => teller.say(&Record::Ended),
        Ok(Err(refused)) => teller.say(&refused),
        Err(finding) => teller.say(&Record::Wrong(finding)),
    }
    Ok(())
}

/// Inside: that the database has refused something, as a record.
fn carry_out(errand: &Errand, teller: &Arc<Teller>) -> Verdict<Result<(), Record>> {
    let refused = |action: &str, error: &Error| {
        let what = format!("{action}: {error}");
        Ok(Err(match error {
            Error::DiskFull { .. } => Record::NoRoom(what),
            _ => Record::Refused(what),
        }))
    };
    teller.say(&Record::Opening);
    let setup = setup_of(errand.setup, errand.diet, &errand.path);
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new());
    let timeline = SharedTimeline::default();
    let opened = patiently(|| {
        Session::open(&setup, Arc::clone(&storage), errand.nth, Arc::clone(&timeline))
    });
    let mut session = match opened {
        Ok(session) => session,
        Err(error) => return refused("open", &error),
    };
    match read_all(&session.db, Detail::Rows) {
        Ok(found) => teller.say(&Record::Found(Box::new(found))),
        Err(error) => return refused("read", &error),
    }
    let hears = Arc::clone(teller);
    look(&timeline).listen(Listener::new(move |told| hears.hear(told)));
    if errand.care == Care::Checks {
        expect_check_ok(&session.db)?;
    }
    for (number, op) in errand.ops().iter().enumerate() {
        if teller.is_deaf.load(Ordering::Relaxed) {
            return Ok(Ok(()));
        }
        match session.run(op) {
            Ok(()) => {}
            Err(Trouble::Refused(error)) => {
                return refused(&format!("operation {number}, {op:?}"), &error);
            }
            Err(Trouble::Absurd(finding)) => {
                return Err(finding.at(&format!("operation {number}, {op:?}")));
            }
        }
    }
    teller.say(&Record::Closing);
    if errand.farewell == Farewell::Close
        && let Err(error) = session.close()
    {
        return refused("close", &error);
    }
    drop(session);
    Ok(Ok(()))
}

/// Says things on the pipe, and the planted lie.
struct Teller {
    // Constant.
    mistake: Mistake,
    // Guarded by themselves.
    pipe: Mutex<Box<dyn Write + Send>>,
    /// A change of the last commit.
    last: Mutex<Option<Change>>,
    // Atomic.
    commits: AtomicU64,
    /// Nobody listens any more.
    is_deaf: AtomicBool,
}

impl Teller {
    fn say(&self, record: &Record) {
        let bytes = record.encode();
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.write_all(&bytes).and_then(|()| pipe.flush()).is_err() {
            self.is_deaf.store(true, Ordering::Relaxed);
        }
    }

    fn hear(&self, told: &Told) {
        match (self.mistake, told) {
            (Mistake::AcknowledgesEarly, Told::Acknowledged(seqno, _)) => {
                self.say(&Record::Told(Told::Acknowledged(*seqno, Durability::Sync)));
            }
            (Mistake::DropsCommits, Told::Issued { now, changes }) => {
                self.say(&Record::Told(told.clone()));
                let dropped = changes.first().map(|change| {
                    let value = Some(format!("dropped at {now}").into_bytes());
                    Change { value, until: Until::Never, ..change.clone() }
                });
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = dropped;
            }
            (Mistake::DropsCommits, Told::Acknowledged(seqno, durability)) => {
                self.say(&Record::Told(told.clone()));
                let number = self.commits.fetch_add(1, Ordering::Relaxed);
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(dropped) = last.filter(|_| number.is_multiple_of(DROPPED_ONE_IN)) {
                    let (now, changes) = (seqno.millis(), vec![dropped]);
                    self.say(&Record::Told(Told::Issued { now, changes }));
                    self.say(&Record::Told(Told::Acknowledged(*seqno, *durability)));
                }
            }
            _ => self.say(&Record::Told(told.clone())),
        }
    }
}
