//! What is told of the commands themselves: `COMMAND`, `ACL CAT`, and `HELP` of those that have
//! subcommands.

use super::super::call::{Done, Failure, SYNTAX, say, wrong_arity};
use super::super::frame::Args;
use super::super::glob::{self, Steps};
use super::super::reply::Reply;
use super::super::session::Session;
use super::super::table::{self, Group, Need, Run, Spec};

/// A subcommand.
#[derive(Clone, Copy, Debug)]
pub struct Subcommand {
    /// Of the command and its own: `client|id`.
    pub name: &'static str,
    /// The number of arguments with both names; below zero, so many at least.
    arity: i8,
    /// What it is given.
    arguments: &'static str,
    /// What it does.
    text: &'static str,
}

const fn sub(
    name: &'static str,
    arity: i8,
    arguments: &'static str,
    text: &'static str,
) -> Subcommand {
    Subcommand { name, arity, arguments, text }
}

/// Those of all commands that have some.
static SUBCOMMANDS: &[Subcommand] = &[
    sub("acl|cat", -2, "[category]", "The categories, or the commands of one."),
    sub("acl|getuser", 3, "name", "What tokens of this name may do."),
    sub("acl|help", 2, "", "This."),
    sub("acl|list", 2, "", "A line for each token: whose it is, and its grants."),
    sub("acl|users", 2, "", "The names of all tokens."),
    sub("acl|whoami", 2, "", "The name of the token that this connection is known by."),
    sub("client|getname", 2, "", "The name of this connection."),
    sub("client|getredir", 2, "", "-1: nothing is sent to other connections."),
    sub("client|help", 2, "", "This."),
    sub("client|id", 2, "", "The number of this connection."),
    sub("client|info", 2, "", "What CLIENT LIST says of this connection."),
    sub(
        "client|kill",
        -3,
        "address | option value [option value ..]",
        "Ends connections by address, or ID, ADDR, LADDR and USER; this one with SKIPME no.",
    ),
    sub("client|list", -2, "[type normal | id number ..]", "A line for each connection."),
    sub("client|no-evict", 3, "on | off", "Changes nothing: no client is evicted."),
    sub("client|no-touch", 3, "on | off", "Changes nothing: reading leaves no mark at a key."),
    sub(
        "client|reply",
        3,
        "on | off | skip",
        "Whether commands are answered; skip leaves the next one out.",
    ),
    sub("client|setinfo", 4, "lib-name | lib-ver text", "Names the library of this connection."),
    sub("client|setname", 3, "name", "Names this connection."),
    sub("command|count", 2, "", "The number of commands."),
    sub("command|docs", -2, "[name ..]", "A text and a group of all commands, or of some."),
    sub("command|getkeys", -3, "name argument ..", "The keys that a whole command names."),
    sub("command|help", 2, "", "This."),
    sub("command|info", -2, "[name ..]", "Arity, flags, keys of all commands, or of some."),
    sub(
        "command|list",
        -2,
        "[filterby aclcat | pattern | module text]",
        "The names of all commands, or of some.",
    ),
    sub("config|get", -3, "pattern ..", "What the server was told, by name."),
    sub("config|help", 2, "", "This."),
    sub("config|resetstat", 2, "", "Is refused: metrics count from the server's start."),
    sub("config|rewrite", 2, "", "Is refused: no setting changes while the server runs."),
    sub("config|set", -4, "name value ..", "Is refused: the server is told when it starts."),
    sub("latency|help", 2, "", "This."),
    sub("latency|history", 3, "event", "Nothing: no events are watched."),
    sub("latency|latest", 2, "", "Nothing: metrics have how long things take."),
    sub("latency|reset", -2, "[event ..]", "0: there is nothing to forget."),
    sub("memory|help", 2, "", "This."),
    sub("memory|usage", -3, "key [samples count]", "About how many bytes a key takes on disk."),
    sub("object|encoding", 3, "key", "What Redis would call the form that a value has."),
    sub("object|freq", 3, "key", "Is refused: nothing is evicted, so nothing is counted."),
    sub("object|help", 2, "", "This."),
    sub("object|idletime", 3, "key", "0: reading leaves no mark at a key."),
    sub("object|refcount", 3, "key", "1."),
    sub("slowlog|get", -2, "[count]", "Nothing: no command is kept with its arguments."),
    sub("slowlog|help", 2, "", "This."),
    sub("slowlog|len", 2, "", "0."),
    sub("slowlog|reset", 2, "", "Forgets nothing."),
];

fn subcommands(command: &str) -> impl Iterator<Item = &'static Subcommand> + Clone {
    SUBCOMMANDS.iter().filter(move |sub| sub.parts().0 == command)
}

impl Subcommand {
    fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('|').unwrap_or((self.name, ""))
    }

    /// Whether it may be part of a transaction: one that ends answers would leave a reply of `EXEC`
    /// with fewer elements than it says.
    pub fn may_be_queued(&self) -> bool {
        self.name != "client|reply"
    }

    fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }
}

/// The subcommand that is meant; `None` of commands without, and for `COMMAND` alone.
pub fn subcommand(spec: &Spec, args: Args<'_>) -> Result<Option<&'static Subcommand>, Failure> {
    if !spec.has(table::PARTS) || args.count() < 2 {
        return Ok(None);
    }
    let mut all = subcommands(spec.name);
    match all.find(|sub| args.is(1, sub.parts().1)) {
        None => unknown_subcommand(args),
        Some(sub) if sub.takes(args.count()) => Ok(Some(sub)),
        Some(sub) => wrong_arity(sub.name),
    }
}

/// What Redis says to a second word that it does not know.
pub fn unknown_subcommand<T>(args: Args<'_>) -> Result<T, Failure> {
    let shown = |index: usize| {
        let word = args.at(index);
        String::from_utf8_lossy(&word[..word.len().min(64)]).into_owned()
    };
    let command = shown(0).to_uppercase();
    say(format!("ERR unknown subcommand '{}'. Try {command} HELP.", shown(1)))
}

/// `HELP`, of whichever command; says whether it was that.
pub fn helped(spec: &Spec, args: Args<'_>, out: &mut Reply) -> bool {
    let is_help = spec.has(table::PARTS) && args.is(1, "help");
    if is_help {
        help(spec, out);
    }
    is_help
}

fn help(spec: &Spec, out: &mut Reply) {
    let all = subcommands(spec.name);
    out.array(1 + 2 * all.clone().count());
    let name = spec.name.to_uppercase();
    out.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in all {
        let line = format!("{} {}", sub.parts().1.to_uppercase(), sub.arguments);
        out.simple(line.trim_end());
        out.simple(&format!("    {}", sub.text));
    }
}

pub fn command(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    let word = args.get(1).map(<[u8]>::to_ascii_lowercase);
    match word.as_deref().unwrap_or(b"info") {
        b"info" if args.count() < 3 => {
            out.array(table::all().count());
            table::all().for_each(|spec| tell_command(spec, out));
        }
        b"info" => return tell_commands(session, args.from(2), out),
        b"count" => out.count(table::all().count()),
        b"list" => return list(args, out),
        b"docs" if args.count() < 3 => {
            out.map(table::all().count());
            table::all().for_each(|spec| tell_docs(spec, out));
        }
        b"docs" => {
            let mut found: Vec<&Spec> = args.from(2).iter().filter_map(table::find).collect();
            found.sort_unstable_by_key(|spec| spec.name);
            found.dedup_by_key(|spec| spec.name); // A map has each once.
            out.map(found.len());
            found.iter().for_each(|spec| tell_docs(spec, out));
        }
        b"getkeys" => return tell_keys(args.from(2), out),
        _ => return unknown_subcommand(args),
    }
    Ok(())
}

/// `COMMAND INFO` of some.
fn tell_commands(session: &Session, names: Args<'_>, out: &mut Reply) -> Done {
    let mark = out.mark();
    out.array(names.count());
    for name in names.iter() {
        let sub = SUBCOMMANDS.iter().find(|sub| name.eq_ignore_ascii_case(sub.name.as_bytes()));
        match (table::find(name), sub) {
            (Some(spec), _) => tell_command(spec, out),
            (None, Some(sub)) => tell_subcommand(sub, out),
            (None, None) => out.null_array(),
        }
        if out.mark() - mark > session.shared.limits.output_size {
            return say("ERR the reply is larger than replies may be");
        }
    }
    Ok(())
}

/// The element of `COMMAND DOCS`.
fn tell_docs(spec: &Spec, out: &mut Reply) {
    let group = table::group_of(spec).name;
    let tell = |name: &str, summary: &str, count: usize, out: &mut Reply| {
        out.text(name);
        out.map(count);
        for (key, value) in [("summary", summary), ("group", group)] {
            out.text(key);
            out.text(value);
        }
    };
    let subs = subcommands(spec.name);
    let count = subs.clone().count();
    tell(spec.name, "See docs/REDIS.md.", 2 + usize::from(count > 0), out);
    if count > 0 {
        out.text("subcommands");
        out.map(count);
        subs.for_each(|sub| tell(sub.name, sub.text, 2, out));
    }
}

/// The keys of a whole command.
fn tell_keys(asked: Args<'_>, out: &mut Reply) -> Done {
    let spec = table::find(asked.at(0));
    let Some(spec) = spec.filter(|spec| subcommand(spec, asked).is_ok()) else {
        return say("ERR Invalid command specified");
    };
    if !spec.takes(asked.count()) {
        return say("ERR Invalid number of arguments specified for command");
    }
    let Some(counted) = spec.counted_keys_of(asked) else {
        return say("ERR Invalid arguments specified for command");
    };
    let keys: Vec<&[u8]> = spec.keys_of(asked).chain(counted.iter()).collect();
    if keys.is_empty() {
        return say("ERR The command has no key arguments");
    }
    out.array(keys.len());
    keys.iter().for_each(|key| out.bulk(key));
    Ok(())
}

/// `COMMAND LIST`, all or those that a filter names.
fn list(args: Args<'_>, out: &mut Reply) -> Done {
    const STEPS_MAX: u64 = 100_000;
    let mut listed: Vec<&Spec> = table::all().collect();
    match args.count() {
        2 => {}
        5 if args.is(2, "filterby") => {
            let (by, wanted) = (args.at(3), args.at(4).to_ascii_lowercase());
            match by.to_ascii_lowercase().as_slice() {
                b"pattern" => {
                    let mut steps = Steps(STEPS_MAX);
                    listed.retain(|spec| {
                        glob::matches(&wanted, spec.name.as_bytes(), &mut steps) == Some(true)
                    });
                }
                b"aclcat" => listed.retain(|spec| is_of_category(spec, &wanted)),
                b"module" => listed.clear(),
                _ => return say(SYNTAX),
            }
        }
        _ => return say(SYNTAX),
    }
    out.array(listed.len());
    listed.iter().for_each(|spec| out.text(spec.name));
    Ok(())
}

/// `ACL CAT`: the categories, or the commands of one.
pub fn categories(args: Args<'_>, out: &mut Reply) -> Done {
    let names: Vec<&str> = match args.count() {
        2 => {
            let mut all: Vec<&str> = table::all().flat_map(categories_of).collect();
            all.sort_unstable();
            all.dedup();
            all
        }
        3 => {
            let wanted = args.at(2).to_ascii_lowercase();
            let listed = table::all().filter(|spec| is_of_category(spec, &wanted));
            listed.map(|spec| spec.name).collect()
        }
        _ => return unknown_subcommand(args),
    };
    if names.is_empty() {
        let wanted = args.at(2);
        let wanted = String::from_utf8_lossy(&wanted[..wanted.len().min(128)]).into_owned();
        return say(format!("ERR Unknown category '{wanted}'"));
    }
    out.array(names.len());
    names.iter().for_each(|name| out.text(name));
    Ok(())
}

/// Those of Redis' categories that are told of a command.
fn categories_of(spec: &Spec) -> impl Iterator<Item = &'static str> {
    let does = match spec.run {
        _ if spec.writes() => Some("write"),
        Run::Keys(_) => Some("read"),
        Run::Session(_) => None,
    };
    // Of what has no keys: what needs more than to be known is about the server.
    let administers = !spec.has_keys()
        && matches!(spec.run, Run::Session(_))
        && !matches!(spec.need, Need::Nothing | Need::Known);
    let Group { category, .. } = table::group_of(spec);
    does.into_iter().chain(administers.then_some("admin")).chain(*category)
}

fn is_of_category(spec: &Spec, wanted: &[u8]) -> bool {
    categories_of(spec).any(|category| category.as_bytes() == wanted)
}

/// What `COMMAND INFO` tells of something.
struct Told<'a> {
    name: &'a str,
    arity: i8,
    flags: Vec<&'a str>,
    /// The first key, the last, and the step.
    keys: (i8, i8, i8),
    categories: Vec<&'a str>,
}

/// All of an element of `COMMAND INFO` but its end, the array of subcommands.
fn tell(told: &Told<'_>, out: &mut Reply) {
    out.array(10);
    out.text(told.name);
    out.integer(i64::from(told.arity));
    out.set(told.flags.len());
    told.flags.iter().for_each(|flag| out.simple(flag));
    let (first, last, step) = told.keys;
    [first, last, step].iter().for_each(|place| out.integer(i64::from(*place)));
    out.set(told.categories.len());
    told.categories.iter().for_each(|category| out.simple(&format!("@{category}")));
    (0..2).for_each(|_| out.array(0)); // Tips, and how keys are found.
}

fn tell_command(spec: &Spec, out: &mut Reply) {
    let mut flags = vec![match spec.run {
        Run::Session(_) => "fast",
        Run::Keys(_) if spec.writes() => "write",
        Run::Keys(_) => "readonly",
    }];
    match spec.need {
        Need::Nothing => flags.push("no_auth"),
        Need::Admin | Need::Stats => flags.push("admin"),
        _ => {}
    }
    if spec.count_at.is_some() {
        flags.push("movablekeys");
    }
    let (name, arity, keys) = (spec.name, spec.arity, spec.keys);
    tell(&Told { name, arity, flags, keys, categories: categories_of(spec).collect() }, out);
    let subs = subcommands(spec.name);
    out.array(subs.clone().count());
    subs.for_each(|sub| tell_subcommand(sub, out));
}

fn tell_subcommand(sub: &Subcommand, out: &mut Reply) {
    let spec = table::find(sub.parts().0.as_bytes()).expect("a test looks up each");
    // One that is done with its name alone has no key.
    let keys = if sub.takes(2) { table::NONE } else { spec.keys };
    let categories = categories_of(spec).collect();
    tell(&Told { name: sub.name, arity: sub.arity, flags: Vec::new(), keys, categories }, out);
    out.array(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_parts_are_those_of_which_parts_are_told() {
        for spec in table::all() {
            let mut subs = subcommands(spec.name);
            assert_eq!(spec.has(table::PARTS), subs.clone().count() > 0, "{}", spec.name);
            assert!(!spec.has(table::PARTS) || subs.any(|sub| sub.parts().1 == "help"));
        }
        for sub in SUBCOMMANDS {
            assert!(table::find(sub.parts().0.as_bytes()).is_some(), "{}", sub.name);
        }
    }
}
