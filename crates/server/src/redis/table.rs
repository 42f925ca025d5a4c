//! The commands that there are: by name, with how many arguments each takes, where its keys are,
//! and what somebody must be allowed to do.
//!
//! From here come `COMMAND`, the errors for wrong numbers of arguments, and authorization: what is
//! not here is unknown, and each has to say what it needs (N2).

use std::collections::HashMap;
use std::sync::OnceLock;

use super::call::{Call, Done};
use super::commands::{
    about, acl, bitmaps, hashes, keys, lists, scan, server, sets, sorted, sorted_ranges,
    sorted_together, strings,
};
use super::databases::DATABASE_COUNT;
use super::frame::Args;
use super::number::integer;
use super::reply::Reply;
use super::session::Session;
use crate::metrics::Kind;

/// What somebody must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: also before it is known who it is.
    Nothing,
    /// To be somebody who is known.
    Known,
    Read,
    Write,
    /// Both, as what was there is told.
    ReadWrite,
    /// `write` and `admin`, of the database.
    Flush,
    /// `admin` of everything.
    Admin,
    /// `write` and `admin` of everything.
    FlushAll,
    /// `stats` of everything.
    Stats,
}

/// How a command is done.
#[derive(Clone, Copy)]
pub enum Run {
    Keys(fn(&mut Call<'_>) -> Done),
    Session(fn(&mut Session, Args<'_>, &mut Reply) -> Done),
}

/// It may make a collection.
pub const MAKES: u8 = 1;
/// It may take long: it makes room for other connections first.
pub const SLOW: u8 = 2;
/// It is not for transactions.
pub const ALONE: u8 = 4;
/// It is done at once while a transaction is put together.
pub const AT_ONCE: u8 = 8;

/// Told how many, it may take long.
pub const COUNTED: u8 = 16;
/// It says little, and may be done in one transaction with others.
pub const TOGETHER: u8 = 32;
/// It has subcommands, `HELP` among them.
pub const PARTS: u8 = 64;
/// It may write to another database than the one that is chosen.
pub const CROSSES: u8 = 128;
/// With more arguments any command takes long.
const MANY_ARGUMENTS: usize = 128;

/// A command.
#[derive(Clone, Copy)]
pub struct Spec {
    pub name: &'static str,
    /// The number of arguments with the name; below zero, so many at least.
    pub arity: i8,
    pub need: Need,
    /// The first key, the last (below zero from the end), and the step.
    pub keys: (i8, i8, i8),
    /// Where it says how many keys follow, if it does.
    pub count_at: Option<u8>,
    pub flags: u8,
    pub kind: Kind,
    pub run: Run,
}

impl Spec {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether a command that writes tells what there was, by what it is told to do.
    pub fn tells(&self, args: Args<'_>) -> bool {
        match self.name {
            "set" => (3..args.count()).any(|at| args.is(at, "get")),
            "zadd" => {
                let is_option = |at: &usize| {
                    ["nx", "xx", "gt", "lt", "ch", "incr"].iter().any(|word| args.is(*at, word))
                };
                (2..args.count()).take_while(is_option).any(|at| args.is(at, "incr"))
            }
            _ => false,
        }
    }

    /// Whether it may take so long that it makes room for other connections first.
    pub fn is_slow(&self, args: Args<'_>) -> bool {
        let count = args.count();
        self.has(SLOW) || count > MANY_ARGUMENTS || self.has(COUNTED) && count > 2
    }

    pub fn writes(&self) -> bool {
        matches!(self.need, Need::Write | Need::ReadWrite | Need::Flush | Need::FlushAll)
    }

    pub fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    pub fn has_keys(&self) -> bool {
        self.keys != NONE || self.count_at.is_some()
    }

    /// The keys of which a command says how many there are; `None` if there are not as many.
    pub fn counted_keys_of<'a>(&self, args: Args<'a>) -> Option<Args<'a>> {
        let Some(count_at) = self.count_at.map(usize::from) else { return Some(args.first(0)) };
        let count = usize::try_from(integer(args.at(count_at))?).ok()?;
        let behind = args.from(count_at + 1);
        (1..=behind.count()).contains(&count).then(|| behind.first(count))
    }

    /// The other database that a command writes to, if it does, and the key there.
    pub fn elsewhere<'a>(&self, args: Args<'a>, database: usize) -> Option<(usize, &'a [u8])> {
        if !self.has(CROSSES) {
            return None;
        }
        let (number, key) = match self.name {
            "move" => (args.get(2)?, args.at(1)),
            _ => {
                let at = (3..args.count()).rev().find(|at| args.is(*at, "db"))?;
                (args.get(at + 1)?, args.at(2))
            }
        };
        let number = usize::try_from(integer(number)?).ok()?;
        (number < DATABASE_COUNT && number != database).then_some((number, key))
    }

    /// The keys that a command which writes may change: those that it names, or counts.
    pub fn changed_keys_of<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        let counted = if self.keys == NONE { self.counted_keys_of(args) } else { None };
        self.keys_of(args).chain(counted.into_iter().flat_map(Args::iter))
    }

    /// The keys that a command names, but for those of which it says how many there are.
    pub fn keys_of<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        let (first, last, step) = self.keys;
        let count = args.count() as i64;
        let last = if last < 0 { count + i64::from(last) } else { i64::from(last) };
        let from = if first > 0 { i64::from(first) } else { i64::MAX };
        let places = (from..=last.min(count - 1)).step_by(usize::from(step.unsigned_abs().max(1)));
        places.filter_map(move |place| args.get(usize::try_from(place).ok()?))
    }
}

const ONE: (i8, i8, i8) = (1, 1, 1);
const TWO: (i8, i8, i8) = (1, 2, 1);
const ALL: (i8, i8, i8) = (1, -1, 1);
/// No keys.
pub const NONE: (i8, i8, i8) = (0, 0, 0);

const fn keys(
    name: &'static str,
    arity: i8,
    (need, kind): (Need, Kind),
    keys: (i8, i8, i8),
    run: fn(&mut Call<'_>) -> Done,
) -> Spec {
    Spec { name, arity, need, keys, count_at: None, flags: 0, kind, run: Run::Keys(run) }
}

const fn session(
    name: &'static str,
    arity: i8,
    need: Need,
    flags: u8,
    run: fn(&mut Session, Args<'_>, &mut Reply) -> Done,
) -> Spec {
    let kind = Kind::Other;
    Spec { name, arity, need, keys: NONE, count_at: None, flags, kind, run: Run::Session(run) }
}

const fn with(flags: u8, spec: Spec) -> Spec {
    Spec { flags: spec.flags | flags, ..spec }
}

const fn counted(count_at: u8, spec: Spec) -> Spec {
    Spec { count_at: Some(count_at), ..spec }
}

const READ: (Need, Kind) = (Need::Read, Kind::Get);
const LOOK: (Need, Kind) = (Need::Read, Kind::Scan);
const PUT: (Need, Kind) = (Need::Write, Kind::Put);
const SWAP: (Need, Kind) = (Need::ReadWrite, Kind::Put);
const DROP: (Need, Kind) = (Need::Write, Kind::Delete);
const TAKE: (Need, Kind) = (Need::ReadWrite, Kind::Delete);
const BATCH: (Need, Kind) = (Need::Write, Kind::Batch);

static STRINGS: &[Spec] = &[
    keys("get", 2, READ, ONE, strings::get),
    with(TOGETHER, keys("set", -3, PUT, ONE, strings::set)),
    with(TOGETHER, keys("setnx", 3, PUT, ONE, strings::setnx)),
    with(TOGETHER, keys("setex", 4, PUT, ONE, strings::setex)),
    with(TOGETHER, keys("psetex", 4, PUT, ONE, strings::psetex)),
    keys("getset", 3, SWAP, ONE, strings::getset),
    keys("getdel", 2, TAKE, ONE, strings::getdel),
    keys("getex", -2, SWAP, ONE, strings::getex),
    keys("mget", -2, READ, ALL, strings::mget),
    with(TOGETHER, keys("mset", -3, BATCH, (1, -1, 2), strings::mset)),
    with(TOGETHER, keys("msetnx", -3, BATCH, (1, -1, 2), strings::msetnx)),
    with(TOGETHER, keys("append", 3, PUT, ONE, strings::append)),
    keys("strlen", 2, READ, ONE, strings::strlen),
    keys("getrange", 4, READ, ONE, strings::getrange),
    keys("substr", 4, READ, ONE, strings::getrange),
    with(TOGETHER, keys("setrange", 4, PUT, ONE, strings::setrange)),
    with(TOGETHER, keys("incr", 2, SWAP, ONE, strings::incr)),
    with(TOGETHER, keys("decr", 2, SWAP, ONE, strings::decr)),
    with(TOGETHER, keys("incrby", 3, SWAP, ONE, strings::incrby)),
    with(TOGETHER, keys("decrby", 3, SWAP, ONE, strings::decrby)),
    with(TOGETHER, keys("incrbyfloat", 3, SWAP, ONE, strings::incrbyfloat)),
];

static BITMAPS: &[Spec] = &[
    with(TOGETHER, keys("setbit", 4, SWAP, ONE, bitmaps::setbit)),
    keys("getbit", 3, READ, ONE, bitmaps::getbit),
    keys("bitcount", -2, READ, ONE, bitmaps::bitcount),
    keys("bitpos", -3, READ, ONE, bitmaps::bitpos),
    with(SLOW, keys("bitop", -4, SWAP, (2, -1, 1), bitmaps::bitop)),
];

static KEYS: &[Spec] = &[
    with(TOGETHER, keys("del", -2, DROP, ALL, keys::del)),
    with(TOGETHER, keys("unlink", -2, DROP, ALL, keys::del)),
    keys("exists", -2, READ, ALL, keys::exists),
    keys("touch", -2, READ, ALL, keys::exists),
    keys("type", 2, READ, ONE, keys::kind),
    with(TOGETHER, keys("expire", -3, PUT, ONE, keys::expire)),
    with(TOGETHER, keys("pexpire", -3, PUT, ONE, keys::pexpire)),
    with(TOGETHER, keys("expireat", -3, PUT, ONE, keys::expireat)),
    with(TOGETHER, keys("pexpireat", -3, PUT, ONE, keys::pexpireat)),
    with(TOGETHER, keys("persist", 2, PUT, ONE, keys::persist)),
    keys("ttl", 2, READ, ONE, keys::ttl),
    keys("pttl", 2, READ, ONE, keys::pttl),
    keys("expiretime", 2, READ, ONE, keys::expiretime),
    keys("pexpiretime", 2, READ, ONE, keys::pexpiretime),
    with(TOGETHER, keys("rename", 3, PUT, TWO, keys::rename)),
    with(TOGETHER, keys("renamenx", 3, PUT, TWO, keys::renamenx)),
    with(SLOW | CROSSES, keys("copy", -3, PUT, TWO, keys::copy)),
    with(SLOW | CROSSES, keys("move", 3, PUT, ONE, keys::move_key)),
    with(SLOW, keys("keys", 2, LOOK, NONE, keys::keys)),
    with(SLOW, keys("scan", -2, LOOK, NONE, scan::scan)),
    with(SLOW, keys("dbsize", 1, LOOK, NONE, keys::dbsize)),
    with(SLOW, keys("randomkey", 1, LOOK, NONE, keys::randomkey)),
    with(PARTS, keys("object", -2, READ, (2, 2, 1), keys::object)),
    with(PARTS, keys("memory", -2, READ, (2, 2, 1), keys::memory)),
    with(SLOW, keys("flushdb", -1, (Need::Flush, Kind::Admin), NONE, keys::flushdb)),
];

static HASHES: &[Spec] = &[
    with(MAKES | TOGETHER, keys("hset", -4, PUT, ONE, hashes::hset)),
    with(MAKES | TOGETHER, keys("hmset", -4, PUT, ONE, hashes::hmset)),
    with(MAKES | TOGETHER, keys("hsetnx", 4, PUT, ONE, hashes::hsetnx)),
    keys("hget", 3, READ, ONE, hashes::hget),
    keys("hmget", -3, READ, ONE, hashes::hmget),
    with(SLOW, keys("hgetall", 2, LOOK, ONE, hashes::hgetall)),
    with(SLOW, keys("hkeys", 2, LOOK, ONE, hashes::hkeys)),
    with(SLOW, keys("hvals", 2, LOOK, ONE, hashes::hvals)),
    with(TOGETHER, keys("hdel", -3, DROP, ONE, hashes::hdel)),
    keys("hlen", 2, READ, ONE, hashes::hlen),
    keys("hexists", 3, READ, ONE, hashes::hexists),
    keys("hstrlen", 3, READ, ONE, hashes::hstrlen),
    with(MAKES | TOGETHER, keys("hincrby", 4, SWAP, ONE, hashes::hincrby)),
    with(MAKES | TOGETHER, keys("hincrbyfloat", 4, SWAP, ONE, hashes::hincrbyfloat)),
    with(COUNTED, keys("hrandfield", -2, LOOK, ONE, hashes::hrandfield)),
    with(COUNTED, keys("hscan", -3, LOOK, ONE, scan::hscan)),
];

static SETS: &[Spec] = &[
    with(MAKES | TOGETHER, keys("sadd", -3, PUT, ONE, sets::sadd)),
    with(TOGETHER, keys("srem", -3, DROP, ONE, sets::srem)),
    with(SLOW, keys("smembers", 2, LOOK, ONE, sets::smembers)),
    keys("sismember", 3, READ, ONE, sets::sismember),
    keys("smismember", -3, READ, ONE, sets::smismember),
    keys("scard", 2, READ, ONE, sets::scard),
    with(MAKES | TOGETHER, keys("smove", 4, PUT, TWO, sets::smove)),
    with(COUNTED, keys("spop", -2, TAKE, ONE, sets::spop)),
    with(COUNTED, keys("srandmember", -2, LOOK, ONE, sets::srandmember)),
    with(SLOW, keys("sinter", -2, LOOK, ALL, sets::sinter)),
    with(SLOW, keys("sunion", -2, LOOK, ALL, sets::sunion)),
    with(SLOW, keys("sdiff", -2, LOOK, ALL, sets::sdiff)),
    counted(1, with(SLOW, keys("sintercard", -3, LOOK, NONE, sets::sintercard))),
    with(SLOW | MAKES, keys("sinterstore", -3, SWAP, ALL, sets::sinterstore)),
    with(SLOW | MAKES, keys("sunionstore", -3, SWAP, ALL, sets::sunionstore)),
    with(SLOW | MAKES, keys("sdiffstore", -3, SWAP, ALL, sets::sdiffstore)),
    with(COUNTED, keys("sscan", -3, LOOK, ONE, scan::sscan)),
];

static SORTED: &[Spec] = &[
    with(MAKES | TOGETHER, keys("zadd", -4, PUT, ONE, sorted::zadd)),
    with(MAKES | TOGETHER, keys("zincrby", 4, SWAP, ONE, sorted::zincrby)),
    with(TOGETHER, keys("zrem", -3, DROP, ONE, sorted::zrem)),
    keys("zscore", 3, READ, ONE, sorted::zscore),
    keys("zmscore", -3, READ, ONE, sorted::zmscore),
    keys("zcard", 2, READ, ONE, sorted::zcard),
    keys("zrank", -3, READ, ONE, sorted::zrank),
    keys("zrevrank", -3, READ, ONE, sorted::zrevrank),
    with(COUNTED, keys("zpopmin", -2, TAKE, ONE, sorted::zpopmin)),
    with(COUNTED, keys("zpopmax", -2, TAKE, ONE, sorted::zpopmax)),
    counted(1, with(COUNTED, keys("zmpop", -4, TAKE, NONE, sorted::zmpop))),
    with(COUNTED, keys("zrandmember", -2, LOOK, ONE, sorted::zrandmember)),
    keys("zcount", 4, READ, ONE, sorted_ranges::zcount),
    keys("zlexcount", 4, READ, ONE, sorted_ranges::zlexcount),
    with(SLOW, keys("zrange", -4, LOOK, ONE, sorted_ranges::zrange)),
    with(SLOW, keys("zrevrange", -4, LOOK, ONE, sorted_ranges::zrevrange)),
    with(SLOW, keys("zrangebyscore", -4, LOOK, ONE, sorted_ranges::zrangebyscore)),
    with(SLOW, keys("zrevrangebyscore", -4, LOOK, ONE, sorted_ranges::zrevrangebyscore)),
    with(SLOW, keys("zrangebylex", -4, LOOK, ONE, sorted_ranges::zrangebylex)),
    with(SLOW, keys("zrevrangebylex", -4, LOOK, ONE, sorted_ranges::zrevrangebylex)),
    with(SLOW | MAKES, keys("zrangestore", -5, SWAP, TWO, sorted_ranges::zrangestore)),
    with(SLOW, keys("zremrangebyrank", 4, DROP, ONE, sorted_ranges::zremrangebyrank)),
    with(SLOW, keys("zremrangebyscore", 4, DROP, ONE, sorted_ranges::zremrangebyscore)),
    with(SLOW, keys("zremrangebylex", 4, DROP, ONE, sorted_ranges::zremrangebylex)),
    counted(1, with(SLOW, keys("zunion", -3, LOOK, NONE, sorted_together::zunion))),
    counted(1, with(SLOW, keys("zinter", -3, LOOK, NONE, sorted_together::zinter))),
    counted(1, with(SLOW, keys("zdiff", -3, LOOK, NONE, sorted_together::zdiff))),
    counted(1, with(SLOW, keys("zintercard", -3, LOOK, NONE, sorted_together::zintercard))),
    counted(
        2,
        with(SLOW | MAKES, keys("zunionstore", -4, SWAP, ONE, sorted_together::zunionstore)),
    ),
    counted(
        2,
        with(SLOW | MAKES, keys("zinterstore", -4, SWAP, ONE, sorted_together::zinterstore)),
    ),
    counted(2, with(SLOW | MAKES, keys("zdiffstore", -4, SWAP, ONE, sorted_together::zdiffstore))),
    with(COUNTED, keys("zscan", -3, LOOK, ONE, scan::zscan)),
];

static LISTS: &[Spec] = &[
    with(MAKES | TOGETHER, keys("lpush", -3, PUT, ONE, lists::lpush)),
    with(MAKES | TOGETHER, keys("rpush", -3, PUT, ONE, lists::rpush)),
    with(TOGETHER, keys("lpushx", -3, PUT, ONE, lists::lpushx)),
    with(TOGETHER, keys("rpushx", -3, PUT, ONE, lists::rpushx)),
    with(COUNTED, keys("lpop", -2, TAKE, ONE, lists::lpop)),
    with(COUNTED, keys("rpop", -2, TAKE, ONE, lists::rpop)),
    keys("llen", 2, READ, ONE, lists::llen),
    with(SLOW, keys("lrange", 4, LOOK, ONE, lists::lrange)),
    keys("lindex", 3, READ, ONE, lists::lindex),
    with(TOGETHER, keys("lset", 4, PUT, ONE, lists::lset)),
    with(SLOW, keys("ltrim", 4, DROP, ONE, lists::ltrim)),
    with(SLOW, keys("lpos", -3, LOOK, ONE, lists::lpos)),
    with(SLOW, keys("linsert", 5, PUT, ONE, lists::linsert)),
    with(SLOW, keys("lrem", 4, DROP, ONE, lists::lrem)),
    with(MAKES, keys("lmove", 5, SWAP, TWO, lists::lmove)),
    with(MAKES, keys("rpoplpush", 3, SWAP, TWO, lists::rpoplpush)),
];

static CONNECTION: &[Spec] = &[
    session("auth", -2, Need::Nothing, ALONE, server::auth),
    session("hello", -1, Need::Nothing, ALONE, server::hello),
    session("quit", -1, Need::Nothing, AT_ONCE, server::quit),
    session("reset", 1, Need::Nothing, AT_ONCE, server::reset),
    session("ping", -1, Need::Known, 0, server::ping),
    session("echo", 2, Need::Known, 0, server::echo),
    session("select", 2, Need::Known, 0, server::select),
    session("client", -2, Need::Known, PARTS, server::client),
];

static TRANSACTIONS: &[Spec] = &[
    session("multi", 1, Need::Known, AT_ONCE, server::multi),
    session("exec", 1, Need::Known, AT_ONCE, server::exec),
    session("discard", 1, Need::Known, AT_ONCE, server::discard),
    Spec { keys: ALL, ..session("watch", -2, Need::Read, AT_ONCE, server::watch) },
    session("unwatch", 1, Need::Known, 0, server::unwatch),
];

static SERVER: &[Spec] = &[
    session("time", 1, Need::Known, 0, server::time),
    session("command", -1, Need::Known, PARTS, about::command),
    session("acl", -2, Need::Known, PARTS, acl::acl),
    session("info", -1, Need::Known, 0, server::info),
    session("config", -2, Need::Stats, PARTS, server::config),
    session("role", 1, Need::Known, 0, server::role),
    session("slowlog", -2, Need::Stats, PARTS, server::slowlog),
    session("latency", -2, Need::Stats, PARTS, server::latency),
    session("lastsave", 1, Need::Stats, 0, server::lastsave),
    session("save", 1, Need::Admin, ALONE | SLOW, server::save),
    session("bgsave", -1, Need::Admin, ALONE | SLOW, server::save),
    session("flushall", -1, Need::FlushAll, ALONE | SLOW, server::flushall),
    session("wait", 3, Need::Known, 0, server::wait),
    session("swapdb", 3, Need::Admin, 0, server::swapdb),
];

/// Commands that go together.
pub struct Group {
    /// As `COMMAND DOCS` names it.
    pub name: &'static str,
    /// As `ACL CAT` does.
    pub category: Option<&'static str>,
    specs: &'static [Spec],
}

const fn group(
    name: &'static str,
    category: Option<&'static str>,
    specs: &'static [Spec],
) -> Group {
    Group { name, category, specs }
}

pub static GROUPS: [Group; 10] = [
    group("string", Some("string"), STRINGS),
    group("bitmap", Some("bitmap"), BITMAPS),
    group("generic", Some("keyspace"), KEYS),
    group("hash", Some("hash"), HASHES),
    group("set", Some("set"), SETS),
    group("sorted-set", Some("sortedset"), SORTED),
    group("list", Some("list"), LISTS),
    group("connection", Some("connection"), CONNECTION),
    group("transactions", Some("transaction"), TRANSACTIONS),
    group("server", None, SERVER),
];

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Spec> + Clone {
    GROUPS.iter().flat_map(|group| group.specs)
}

/// The group that a command is in.
pub fn group_of(spec: &Spec) -> &'static Group {
    let is_in = |group: &&Group| group.specs.iter().any(|other| other.name == spec.name);
    GROUPS.iter().find(is_in).expect("each command is in one")
}

const NAME_LEN_MAX: usize = 24;

/// The command of a name, in letters of any case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    static BY_NAME: OnceLock<HashMap<&'static [u8], &'static Spec>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| all().map(|spec| (spec.name.as_bytes(), spec)).collect());
    let mut lower = [0; NAME_LEN_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    by_name.get(&*lower).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_once_and_found_in_any_case() {
        let mut names: Vec<_> = all().map(|spec| spec.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for name in names {
            assert!(name.len() <= NAME_LEN_MAX);
            assert_eq!(find(name.to_uppercase().as_bytes()).unwrap().name, name);
        }
        assert!(find(b"subscribe").is_none() && find(b"eval").is_none());
        assert!(find(&[b'x'; 1000]).is_none());
    }

    #[test]
    fn what_may_be_done_by_anybody_is_little() {
        let open = all().filter(|spec| spec.need == Need::Nothing).map(|spec| spec.name);
        assert_eq!(open.collect::<Vec<_>>(), ["auth", "hello", "quit", "reset"]);
        for spec in all() {
            let is_of_keys = matches!(spec.run, Run::Keys(_));
            assert!(!is_of_keys || !matches!(spec.need, Need::Nothing | Need::Known));
            assert!(!spec.has(MAKES) || spec.writes(), "{}", spec.name);
            assert!(!spec.has(MAKES) || spec.keys != NONE, "{}: its key is held", spec.name);
            assert!(!spec.has(TOGETHER) || is_of_keys && spec.writes(), "{}", spec.name);
        }
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let keys_of = |words: &[&str]| {
            let bytes = words.concat().into_bytes();
            let mut at = 0;
            let places: Vec<(u32, u32)> = words
                .iter()
                .map(|word| {
                    at += word.len() as u32;
                    (at - word.len() as u32, at)
                })
                .collect();
            let args = Args::new(&bytes, &places);
            let keys = find(words[0].as_bytes()).unwrap().keys_of(args);
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys_of(&["mset", "a", "1", "b", "2"]), ["a", "b"]);
        assert_eq!(keys_of(&["del", "a", "b", "c"]), ["a", "b", "c"]);
        assert_eq!(keys_of(&["smove", "a", "b", "m"]), ["a", "b"]);
        assert_eq!(keys_of(&["keys", "*"]), [""; 0]);
        assert_eq!(keys_of(&["object", "encoding", "a"]), ["a"]);
        assert_eq!(keys_of(&["object", "help"]), [""; 0]);
        assert_eq!(keys_of(&["zunionstore", "to", "2", "a", "b"]), ["to"]);
    }
}
