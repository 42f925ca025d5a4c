//! A client's session: who it is, which database it has chosen, its transaction; and how a command
//! is done for it.
//!
//! Commands that come together are done together: what they write waits for one sync, and a row of
//! plain `SET`s is one batch. None of them is told to be done before that (N1).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lithedb::{Durability, Error, KEY_LEN_MAX, Keyspace, WriteBatch};

use super::NO_ROOM;
use super::call::{Call, Done, Failure, STEPS_MAX, Until, View, Written, say, wrong_arity};
use super::clients::Client;
use super::collection::record_key;
use super::commands::about;
use super::databases::{Databases, Handles, Held, stripe_of};
use super::frame::{Args, FrameLimits};
use super::glob::Steps;
use super::queue::{Queue, Watches};
use super::reply::{Reply, Version};
use super::table::{self, ALONE, AT_ONCE, MAKES, Need, Run, Spec};
use super::together::{Together, goes_together};
use crate::auth::{Known, Principal, Verb};
use crate::log::{Level, Said};
use crate::metrics::{Kind, Protocol, Refusal};
use crate::server::Shared;

/// How often a command is tried that conflicts with writers past this protocol.
pub const TRY_COUNT: usize = 64;
/// After so many conflicts it waits before it is tried again, each time twice as long.
const PATIENT_TRIES: usize = 2;
const WAIT_MIN: Duration = Duration::from_micros(20);
const WAIT_DOUBLINGS_MAX: usize = 8;
/// A row of `SET`s is committed when it has so many, or so many bytes.
const ROW_COUNT_MAX: usize = 128;
const ROW_SIZE_MAX: usize = 1 << 20;
/// What somebody who is not known may send as one command, and as a line.
const UNKNOWN_FRAME_MAX: usize = 40 << 10;
const UNKNOWN_LINE_MAX: usize = 16 << 10;
const LINE_MAX: usize = 64 << 10;
/// After so many wrong tokens a connection is closed.
const WRONG_TOKENS_MAX: u32 = 3;

/// A client's session.
#[derive(Debug)]
pub struct Session {
    pub shared: Arc<Shared>,
    pub client: Arc<Client>,
    from: IpAddr,
    pub principal: Option<Principal>,
    /// Since when it is not known who it is, if it is not.
    pub unknown_since: Duration,
    /// By which it is known, for when the file of tokens is read again.
    token: Option<String>,
    tokens_read: u64,
    wrong_tokens: u32,
    pub database: usize,
    /// What it may do with the database that it has chosen.
    pub rights: Rights,
    pub queue: Option<Queue>,
    pub watches: Watches,
    /// The keyspace of strings of its database, as it was last found, and by which look.
    strings: Option<Keyspace>,
    lookups: u64,
    /// Whether something was written that a sync is to be waited for.
    pub has_written: bool,
    /// Whether the connection ends when what was said is sent.
    pub is_over: bool,
    /// Commands of each kind since this was last asked for ..
    pub kinds: [u32; Kind::ALL.len()],
    /// .. and, if they are to be lines of the log, their names, and what error they have.
    pub to_log: Vec<(&'static str, Option<String>)>,
    pub last_command: &'static str,
    pub quiet: Quiet,
    /// Where what is not answered begins, with [`Quiet::Always`].
    quiet_from: usize,
}

/// Which commands are not answered, as `CLIENT REPLY` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    No,
    /// The one that is being done.
    This,
    Next,
    Always,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Rights {
    read: bool,
    write: bool,
    admin: bool,
}

/// Whether there are more bytes of a client behind a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    Nothing,
    Something,
}

/// A row of `SET`s that was said to be done and is not committed yet.
#[derive(Debug)]
pub struct Row<'a> {
    databases: &'a Databases,
    held: Held<'a>,
    batch: WriteBatch,
    count: usize,
    /// Where its replies begin.
    mark: usize,
    /// Commands that are done together, if there is no `SET` in the row.
    together: Together,
}

impl<'a> Row<'a> {
    pub fn new(databases: &'a Databases) -> Row<'a> {
        let (held, batch, together) = (Held::default(), WriteBatch::new(), Together::default());
        Row { databases, held, batch, count: 0, mark: 0, together }
    }
}

impl Session {
    pub fn new(shared: Arc<Shared>, client: Arc<Client>) -> Session {
        let principal = shared.authority.without_token();
        let tokens_read = shared.authority.reads();
        let from = client.peer.ip();
        let unknown_since = shared.store.began().elapsed();
        let mut session = Session {
            shared,
            client,
            from,
            principal: None,
            unknown_since,
            token: None,
            tokens_read,
            wrong_tokens: 0,
            database: 0,
            rights: Rights::default(),
            queue: None,
            watches: Watches::default(),
            strings: None,
            lookups: 0,
            has_written: false,
            is_over: false,
            kinds: [0; Kind::ALL.len()],
            to_log: Vec::new(),
            last_command: "",
            quiet: Quiet::No,
            quiet_from: 0,
        };
        session.become_known(principal);
        session
    }

    fn become_known(&mut self, principal: Option<Principal>) {
        self.client.shown().user =
            principal.as_ref().map(|principal| principal.name().to_owned()).unwrap_or_default();
        self.principal = principal;
        self.choose(self.database);
    }

    /// Chooses a database.
    pub fn choose(&mut self, database: usize) {
        self.database = database;
        self.strings = None;
        self.rights = self.rights_on(database);
    }

    fn rights_on(&self, database: usize) -> Rights {
        let name = &self.shared.redis.databases.at(database).name;
        let may = |verb| self.principal.as_ref().is_some_and(|who| who.may(verb, name));
        Rights { read: may(Verb::Read), write: may(Verb::Write), admin: may(Verb::Admin) }
    }

    /// As it was when it began, but for who it is: that is nobody, where there are tokens.
    pub fn reset(&mut self) {
        self.queue = None;
        self.forget_watches();
        self.token = None;
        self.database = 0;
        let principal = self.shared.authority.without_token();
        // Who was not known anyway gains no time by this.
        if principal.is_none() && self.principal.is_some() {
            self.unknown_since = self.shared.store.began().elapsed();
        }
        self.become_known(principal);
    }

    pub fn forget_watches(&mut self) {
        self.watches = Watches::default();
    }

    /// How large commands may be.
    pub fn frame_limits(&self) -> FrameLimits {
        let limits = &self.shared.limits;
        let body = usize::try_from(limits.body_size).unwrap_or(usize::MAX).min(1 << 30);
        match self.principal {
            Some(_) => FrameLimits {
                arguments: limits.batch_count,
                bulk: body,
                frame: body + LINE_MAX,
                line: LINE_MAX,
                is_unknown: false,
            },
            None => FrameLimits {
                arguments: limits.unknown_argument_count,
                bulk: limits.unknown_argument_size,
                frame: UNKNOWN_FRAME_MAX,
                line: UNKNOWN_LINE_MAX,
                is_unknown: true,
            },
        }
    }

    /// Looks whether it is still known, if the file of tokens was read again.
    pub fn look_again(&mut self) {
        let read = self.shared.authority.reads();
        if read == self.tokens_read {
            return;
        }
        self.tokens_read = read;
        let Some(token) = &self.token else { return };
        let now = self.shared.store.began().elapsed();
        match self.shared.authority.with_token(token, self.from, now) {
            Known::As(principal) => self.become_known(Some(principal)),
            Known::Nobody | Known::TooOften => {
                self.become_known(None);
                self.is_over = true;
            }
        }
    }

    /// Becomes who has a token.
    pub fn authenticate(&mut self, name: Option<&[u8]>, token: &[u8]) -> Done {
        const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
        if let Some(anybody) = self.shared.authority.without_token() {
            return match name {
                Some(name) if name == anybody.name().as_bytes() => Ok(()),
                Some(_) => say(WRONG),
                None => say(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ),
            };
        }
        let token = str::from_utf8(token).unwrap_or_default();
        let now = self.shared.store.began().elapsed();
        let known = self.shared.authority.with_token(token, self.from, now);
        // Clients that are told a password alone say the name that Redis gives to everybody.
        let is_name = |name: &[u8], known: &str| name == known.as_bytes() || name == b"default";
        if let Known::As(principal) = &known
            && name.is_none_or(|name| is_name(name, principal.name()))
        {
            self.token = Some(token.to_owned());
            self.become_known(Some(principal.clone()));
            return Ok(());
        }
        self.shared.metrics.note_refusal(Refusal::Unknown);
        let why = match known {
            Known::As(_) => "it is another one's than was said",
            Known::Nobody => "nobody has it",
            Known::TooOften => "there were too many wrong tokens from this address",
        };
        let from = ("redis", self.client.peer);
        self.shared.wrong_tokens.note(self.shared.log, from, why, now);
        self.wrong_tokens += 1;
        self.is_over |= matches!(known, Known::TooOften) || self.wrong_tokens >= WRONG_TOKENS_MAX;
        say(WRONG)
    }

    /// Refuses what it may not do, with these rights on the database.
    pub fn check_rights(&self, spec: &Spec, args: Args<'_>, rights: Rights) -> Done {
        if self.may(spec, args, rights) {
            return Ok(());
        }
        self.shared.metrics.note_refusal(Refusal::Forbidden);
        let user = self.principal.as_ref().map_or("", |principal| principal.name());
        let name = spec.name;
        say(format!("NOPERM User {user} has no permissions to run the '{name}' command"))
    }

    fn may(&self, spec: &Spec, args: Args<'_>, rights: Rights) -> bool {
        let Some(principal) = &self.principal else { return spec.need == Need::Nothing };
        // What goes to another database can be read by who may read that one.
        let database = self.queue.as_ref().map_or(self.database, |queue| queue.database);
        if let Some((other, _)) = spec.elsewhere(args, database)
            && !(rights.read && self.rights_on(other).write)
        {
            return false;
        }
        match spec.need {
            Need::Nothing | Need::Known => true,
            Need::Read => rights.read,
            Need::Write => rights.write && (rights.read || !spec.tells(args)),
            Need::ReadWrite => rights.read && rights.write,
            Need::Flush => rights.write && rights.admin,
            Need::Admin => principal.may_with_all(Verb::Admin),
            Need::FlushAll => {
                principal.may_with_all(Verb::Admin) && principal.may_with_all(Verb::Write)
            }
            Need::Stats => principal.may_with_all(Verb::Stats),
        }
    }

    /// Whether it may do something with everything.
    pub fn may_with_all(&self, verb: Verb) -> bool {
        self.principal.as_ref().is_some_and(|principal| principal.may_with_all(verb))
    }

    /// Does a command, and says what came of it; or keeps it, to be done together with what
    /// follows.
    pub fn execute<'s>(
        &mut self,
        args: Args<'_>,
        follows: Follows,
        out: &mut Reply,
        row: &mut Row<'s>,
    ) {
        match self.quiet {
            Quiet::Next | Quiet::This => self.execute_quietly(args, out, row),
            Quiet::No | Quiet::Always => self.execute_now(args, follows, out, row),
        }
    }

    fn execute_now<'s>(
        &mut self,
        args: Args<'_>,
        follows: Follows,
        out: &mut Reply,
        row: &mut Row<'s>,
    ) {
        let spec = table::find(args.at(0));
        if let Some(spec) = spec.filter(|spec| self.queue.is_none() && spec.takes(args.count())) {
            self.last_command = spec.name;
            let is_first = row.together.is_empty();
            let is_done = match spec.name {
                "get" if self.rights.read => {
                    self.commit_row(row, out);
                    self.get(args.at(1), out)
                }
                "set" if self.rights.write && is_first => self.set(args, out, row),
                _ => false,
            };
            if is_done {
                self.kinds[spec.kind as usize] += 1;
                self.log(spec.name, &Ok(()));
                return;
            }
            let is_kept = follows == Follows::Something || !is_first;
            if is_kept && goes_together(spec, args) && self.may_with_keys(spec, args) {
                if is_first {
                    self.commit_row(row, out);
                }
                self.kinds[spec.kind as usize] += 1;
                self.log(spec.name, &Ok(()));
                row.together.push(spec, args);
                if row.together.is_full() {
                    self.commit_row(row, out);
                }
                return;
            }
        }
        self.commit_row(row, out);
        let mark = out.mark();
        let done = self.dispatch(spec, args, out);
        let name = match (spec, &done) {
            (Some(_), Ok(())) => self.last_command,
            (Some(spec), Err(_)) => spec.name,
            (None, _) => "unknown",
        };
        self.log(name, &done);
        if done.is_err() || matches!(self.quiet, Quiet::This | Quiet::Next) {
            out.back_to(mark);
        }
        if let Err(failure) = done {
            self.tell(&failure, spec.map_or(Kind::Other, |spec| spec.kind), out);
        }
    }

    /// Keeps what the log says of a command, if it says that of each: never what is behind its
    /// name, nor more of an error than its first word.
    fn log(&mut self, name: &'static str, done: &Done) {
        if self.shared.log.has_requests() {
            let error = done.as_ref().err().map(|failure| match failure {
                Failure::Say(text) => text.split(' ').next().unwrap_or_default().to_owned(),
                Failure::Engine(_) => "engine".to_owned(),
            });
            self.to_log.push((name, error));
        }
    }

    /// Does a command without an answer, unless it asks for answers again.
    fn execute_quietly<'s>(&mut self, args: Args<'_>, out: &mut Reply, row: &mut Row<'s>) {
        self.quiet = Quiet::This;
        self.commit_row(row, out);
        let mark = out.mark();
        self.execute_now(args, Follows::Nothing, out, row);
        self.commit_row(row, out);
        if self.quiet != Quiet::No {
            out.back_to(mark);
        }
        if self.quiet == Quiet::This {
            self.quiet = Quiet::No;
        }
    }

    /// Answers nothing that comes from now on. What was said before is to be sent.
    pub fn be_quiet(&mut self, out: &Reply) {
        if self.quiet != Quiet::Always {
            (self.quiet, self.quiet_from) = (Quiet::Always, out.mark());
        }
    }

    /// Answers what comes from now on.
    pub fn answer_again(&mut self, out: &mut Reply) {
        self.take_back(out);
        self.quiet = Quiet::No;
    }

    fn take_back(&mut self, out: &mut Reply) {
        if self.quiet == Quiet::Always {
            out.back_to(self.quiet_from);
        }
    }

    /// Commits what was kept. All that was said is to be sent before more is done.
    pub fn finish(&mut self, row: &mut Row<'_>, out: &mut Reply) {
        self.commit_row(row, out);
        self.take_back(out);
        self.quiet_from = 0; // Where it begins when this is sent.
    }

    /// Whether it may do this, and the keys are no larger than they may be.
    fn may_with_keys(&self, spec: &Spec, args: Args<'_>) -> bool {
        let key_size = self.shared.limits.key_size;
        self.may(spec, args, self.rights) && spec.keys_of(args).all(|key| key.len() <= key_size)
    }

    fn dispatch(&mut self, spec: Option<&'static Spec>, args: Args<'_>, out: &mut Reply) -> Done {
        if self.principal.is_none() && spec.is_none_or(|spec| spec.need != Need::Nothing) {
            self.shared.metrics.note_refusal(Refusal::Unknown);
            return say("NOAUTH Authentication required.");
        }
        let (spec, name) = match self.check(spec, args) {
            Ok(checked) => checked,
            Err(refusal) => {
                if let Some(queue) = &mut self.queue {
                    queue.is_bad = true;
                }
                return Err(refusal);
            }
        };
        self.last_command = name;
        let limit = self.frame_limits();
        if let Some(queue) = self.queue.as_mut().filter(|_| !spec.has(AT_ONCE)) {
            queue.push(spec, args, (&limit, &self.shared.redis.room))?;
            out.simple("QUEUED");
            return Ok(());
        }
        self.kinds[spec.kind as usize] += 1;
        match spec.is_slow(args) {
            true => tokio::task::block_in_place(|| self.run(spec, args, out))?,
            false => self.run(spec, args, out)?,
        }
        is_said(out)
    }

    /// Whether a command can be done, or queued: which it is, and what others are told of it.
    fn check(
        &self,
        spec: Option<&'static Spec>,
        args: Args<'_>,
    ) -> Result<(&'static Spec, &'static str), Failure> {
        let Some(spec) = spec else { return say(unknown_command(args)) };
        if !spec.takes(args.count()) {
            return wrong_arity(spec.name);
        }
        let part = about::subcommand(spec, args)?;
        let key_size = self.shared.limits.key_size;
        if spec.writes() && spec.changed_keys_of(args).any(|key| key.len() > key_size) {
            self.shared.metrics.note_refusal(Refusal::Size);
            return say("ERR the key is larger than keys may be");
        }
        let is_alone = spec.has(ALONE) || part.is_some_and(|part| !part.may_be_queued());
        if self.queue.is_some() && is_alone {
            return say("ERR Command not allowed inside a transaction");
        }
        let rights = match &self.queue {
            Some(queue) if queue.database != self.database => self.rights_on(queue.database),
            _ => self.rights,
        };
        self.check_rights(spec, args, rights)?;
        Ok((spec, part.map_or(spec.name, |part| part.name)))
    }

    pub fn run(&mut self, spec: &'static Spec, args: Args<'_>, out: &mut Reply) -> Done {
        let mark = out.mark();
        match self.run_once(spec, args, out) {
            Err(Failure::Engine(Error::KeyspaceNotFound { .. })) => {
                // It was dropped past this: what there is now is looked at.
                out.back_to(mark);
                self.refresh();
                self.run_once(spec, args, out)
            }
            done => done,
        }
    }

    fn run_once(&mut self, spec: &'static Spec, args: Args<'_>, out: &mut Reply) -> Done {
        match spec.run {
            _ if about::helped(spec, args, out) => Ok(()),
            Run::Session(run) => run(self, args, out),
            Run::Keys(run) => self.run_on_keys(spec, run, args, out),
        }
    }

    /// Looks up which keyspaces there are: one was dropped past this.
    pub fn refresh(&mut self) {
        self.strings = None;
        let db = self.shared.store.db();
        self.shared.redis.databases.iter().for_each(|database| database.refresh(db));
    }

    fn run_on_keys(
        &mut self,
        spec: &'static Spec,
        run: fn(&mut Call<'_>) -> Done,
        args: Args<'_>,
        out: &mut Reply,
    ) -> Done {
        let shared = &*self.shared;
        let (db, databases, database) = (shared.store.db(), &shared.redis.databases, self.database);
        let elsewhere = spec.elsewhere(args, database);
        let call = |handles: &Handles, view: &mut View, out: &mut Reply| {
            let steps = Steps(STEPS_MAX);
            let other = elsewhere.map(|(other, _)| (other, databases.at(other).handles()));
            let other = other.as_ref().map(|(other, handles)| (*other, handles));
            run(&mut Call { args, out, view, handles, shared, database, other, steps })
        };
        if !spec.writes() {
            let handles = databases.at(database).handles();
            return call(&handles, &mut View::Snapshot(db.snapshot()), out);
        }
        match spec.has(MAKES) {
            true => databases.for_collections(db, database)?,
            false => databases.for_writing(db, database)?,
        }
        let keys = spec.changed_keys_of(args).map(|key| stripe_of(database, key));
        let mut stripes: Vec<usize> = keys.collect();
        if let Some((other, key)) = elsewhere {
            databases.for_what_comes_from(db, database, other)?;
            stripes.push(stripe_of(other, key));
        }
        let _held = databases.hold(stripes);
        let mark = out.mark();
        for conflicts in 0..TRY_COUNT {
            make_way(conflicts);
            let handles = databases.at(database).handles();
            let mut view = View::transaction(db);
            call(&handles, &mut view, out)?;
            is_said(out)?;
            match commit(shared, &mut view) {
                Ok(has_written) => {
                    self.has_written |= has_written;
                    return Ok(());
                }
                Err(Error::Conflict) => out.back_to(mark),
                Err(error) => return Err(error.into()),
            }
        }
        say("TRYAGAIN others change this key all the time")
    }

    /// Finds the keyspace of strings, if it is not known or may have another name by now. One that
    /// is to be made is made without stripes held.
    fn find_strings(&mut self) {
        let databases = &self.shared.redis.databases;
        let lookups = databases.lookups();
        if self.strings.is_none() || self.lookups != lookups {
            (self.strings, self.lookups) = (databases.at(self.database).handles().strings, lookups);
        }
    }

    /// `GET`, without a snapshot. Says whether it is done.
    fn get(&mut self, key: &[u8], out: &mut Reply) -> bool {
        self.find_strings();
        let database = self.shared.redis.databases.at(self.database);
        let looks = &self.shared.redis.looks;
        match self.strings.as_ref().map(|strings| strings.get(key)) {
            Some(Ok(Some(value))) => {
                looks.note(true);
                out.bulk(&value);
            }
            Some(Ok(None)) if !database.has_second() => {
                looks.note(false);
                out.null();
            }
            // Perhaps a collection; or it is not there any more; or it fails once more.
            Some(Ok(None) | Err(_)) | None => return false,
        }
        true
    }

    /// `SET` without conditions: a part of a row. Says whether it is done.
    fn set<'s>(&mut self, args: Args<'_>, out: &mut Reply, row: &mut Row<'s>) -> bool {
        let Some(until) = super::commands::strings::plain_set(args) else { return false };
        let (key, value) = (args.at(1), args.at(2));
        let shared = &*self.shared;
        let key_size = shared.limits.key_size.min(KEY_LEN_MAX);
        if key.len() > key_size || value.len() as u64 > shared.limits.value_size {
            return false;
        }
        let stripe = stripe_of(self.database, key);
        if !row.databases.hold_more(&mut row.held, stripe) {
            self.commit_row(row, out);
            row.databases.hold_more(&mut row.held, stripe);
        }
        // With the stripe held, as `databases.rs` wants it.
        let second = self.shared.redis.databases.at(self.database).has_second();
        if second && !self.has_no_collection(key) {
            self.commit_row(row, out);
            return false;
        }
        self.find_strings();
        let Some(strings) = &self.strings else {
            self.commit_row(row, out);
            return false;
        };
        if row.count == 0 {
            row.mark = out.mark();
        }
        match until {
            Until::Default => row.batch.put(strings, key, value),
            Until::As(expiry) => row.batch.put_until(strings, key, value, expiry),
            Until::For(time) => row.batch.put_with_ttl(strings, key, value, time),
        }
        row.count += 1;
        out.ok();
        if row.count >= ROW_COUNT_MAX || row.batch.size() >= ROW_SIZE_MAX {
            self.commit_row(row, out);
        }
        true
    }

    fn has_no_collection(&self, key: &[u8]) -> bool {
        let handles = self.shared.redis.databases.at(self.database).handles();
        let found = handles.second.map(|second| second.contains(record_key(key)));
        matches!(found, None | Some(Ok(false)))
    }

    /// Commits a row, or does what was kept; if a row cannot be committed, none of it is said to be
    /// done.
    pub fn commit_row(&mut self, row: &mut Row<'_>, out: &mut Reply) {
        if !row.together.is_empty() {
            return self.do_together(&mut row.together, out);
        }
        if row.count > 0 {
            let (store, batch) = (&self.shared.store, std::mem::take(&mut row.batch));
            let count = std::mem::take(&mut row.count);
            match store.buffered(|| store.db().write_with(batch, Durability::Buffered)) {
                Ok(_) => self.has_written = true,
                Err(error) => {
                    if matches!(error, Error::KeyspaceNotFound { .. }) {
                        self.refresh();
                    }
                    out.back_to(row.mark);
                    let failure = Failure::Engine(error);
                    (0..count).for_each(|_| self.tell(&failure, Kind::Put, out));
                }
            }
        }
        row.held.clear();
    }

    /// Says why something was not done. What the engine says of files is for the log.
    pub fn tell(&self, failure: &Failure, kind: Kind, out: &mut Reply) {
        let error = match failure {
            Failure::Say(text) => return out.error(text),
            Failure::Engine(error) => error,
        };
        match error {
            Error::InvalidArgument { what } => return out.error(&format!("ERR {what}")),
            Error::Conflict => return out.error("TRYAGAIN others have changed this meanwhile"),
            Error::KeyspaceNotFound { .. } => {
                return out.error("TRYAGAIN the database was dropped meanwhile");
            }
            Error::UniqueViolation { index, .. } => {
                return out.error(&format!("ERR the index '{index}' would have a key twice"));
            }
            Error::DiskFull { .. } => out.error("OOM command not allowed: the disk is full"),
            Error::ReadOnly { .. } => out.error("READONLY the database cannot be written to"),
            Error::Closed => out.error("ERR the server stops"),
            error => {
                let why = ("why", Said::Text(error));
                self.shared.log.line(Level::Error, "a command failed", &[why]);
                out.error("ERR the server could not do it: its log says why");
            }
        }
        self.shared.metrics.note_failure(Protocol::Redis, kind);
    }

    /// Sweeps what is left of collections that have expired, once a second at most.
    pub fn sweep_if_due(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = shared.store.began().elapsed().as_secs();
        let swept = &shared.redis.swept;
        let last = swept.load(Ordering::Relaxed);
        let is_mine = now > last
            && swept.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_mine {
            return;
        }
        let mut is_over = true;
        tokio::task::block_in_place(|| {
            for (database, found) in shared.redis.databases.iter().enumerate() {
                if found.has_second() {
                    // Who is in its way comes first; it is tried again in a second.
                    is_over &= !sweep(&shared, database).unwrap_or(false);
                }
            }
        });
        if !is_over {
            swept.store(last, Ordering::Relaxed); // Whoever is next goes on.
        }
    }

    /// What others are told of it.
    pub fn show(&self, version: Version) {
        let mut shown = self.client.shown();
        shown.last = self.shared.store.began().elapsed();
        shown.command = self.last_command;
        shown.database = self.database;
        shown.version = if version == Version::Three { 3 } else { 2 };
        shown.queued = self.queue.as_ref().map_or(-1, |queue| queue.count() as i64);
    }
}

/// Whether there was memory for what was said: else nothing is to be done.
pub fn is_said(out: &Reply) -> Done {
    if out.is_refused() { say(NO_ROOM) } else { Ok(()) }
}

/// Lets others finish, after so many conflicts with them.
pub fn make_way(conflicts: usize) {
    if let Some(doublings) = conflicts.checked_sub(PATIENT_TRIES) {
        let wait = WAIT_MIN * (1 << doublings.min(WAIT_DOUBLINGS_MAX));
        tokio::task::block_in_place(|| std::thread::sleep(wait));
    }
}

/// Sweeps some of a database; says whether there may be more.
fn sweep(shared: &Shared, database: usize) -> Result<bool, Failure> {
    let handles = &shared.redis.databases.at(database).handles();
    let mut view = View::transaction(shared.store.db());
    let (args, out, steps) = (Args::new(&[], &[]), &mut Reply::new(), Steps(STEPS_MAX));
    let (view, other) = (&mut view, None);
    let call = &mut Call { args, out, view: &mut *view, handles, shared, database, other, steps };
    let is_more = call.sweep()?;
    commit(shared, view)?;
    Ok(is_more)
}

/// Commits what a view has written, without a sync; says whether there was something.
pub fn commit(shared: &Shared, view: &mut View) -> Result<bool, Error> {
    let View::Transaction { transaction, written: Written { count: 1.., .. } } = view else {
        return Ok(false);
    };
    shared.store.buffered(|| transaction.commit_with(Durability::Buffered))?;
    Ok(true)
}

/// What Redis says to a command that it does not know.
fn unknown_command(args: Args<'_>) -> String {
    let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(args.at(0)));
    for word in args.from(1).iter() {
        if text.len() > 192 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(word)));
    }
    text
}
