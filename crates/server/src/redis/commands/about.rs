//! What is told of the commands themselves: `COMMAND`, `ACL CAT`, and `HELP` of those that have
//! subcommands.

use super::super::call::{Done, SYNTAX, say};
use super::super::frame::Args;
use super::super::glob::{self, Steps};
use super::super::reply::Reply;
use super::super::session::Session;
use super::super::table::{self, Group, Need, Run, Spec};
use super::unknown_subcommand;

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
    sub("acl|help", 2, "", "This."),
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
        "Ends connections: those of an address, or by ID, ADDR and USER; this one with SKIPME no.",
    ),
    sub("client|list", -2, "", "A line for each connection."),
    sub("client|no-evict", 3, "on | off", "Changes nothing: no client is evicted."),
    sub("client|no-touch", 3, "on | off", "Changes nothing: reading leaves no mark at a key."),
    sub("client|reply", 3, "on | off | skip", "Whether commands are answered; skip is for one."),
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
    sub("memory|help", 2, "", "This."),
    sub("memory|usage", -3, "key [samples count]", "About how many bytes a key takes on disk."),
    sub("object|encoding", 3, "key", "What Redis would call the form that a value has."),
    sub("object|freq", 3, "key", "Is refused: nothing is evicted, so nothing is counted."),
    sub("object|help", 2, "", "This."),
    sub("object|idletime", 3, "key", "0: reading leaves no mark at a key."),
    sub("object|refcount", 3, "key", "1."),
];

fn subcommands(command: &str) -> impl Iterator<Item = &'static Subcommand> + Clone {
    SUBCOMMANDS.iter().filter(move |sub| sub.parts().0 == command)
}

impl Subcommand {
    fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('|').unwrap_or((self.name, ""))
    }

    fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }
}

/// The subcommand that is meant; `None` of commands without, and for `COMMAND` alone.
pub fn subcommand(spec: &Spec, args: Args<'_>) -> Result<Option<&'static Subcommand>, String> {
    if !spec.has(table::PARTS) || args.count() < 2 {
        return Ok(None);
    }
    let mut all = subcommands(spec.name);
    match all.find(|sub| args.is(1, sub.parts().1)) {
        None => Err(unknown_subcommand(args)),
        Some(sub) if sub.takes(args.count()) => Ok(Some(sub)),
        Some(sub) => Err(format!("ERR wrong number of arguments for '{}' command", sub.name)),
    }
}

/// `HELP`.
pub fn help(spec: &Spec, out: &mut Reply) {
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

pub fn command(_session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    let word = args.get(1).map(<[u8]>::to_ascii_lowercase);
    match word.as_deref().unwrap_or(b"info") {
        b"info" if args.count() < 3 => {
            out.array(table::all().count());
            table::all().for_each(|spec| tell_command(spec, out));
        }
        b"info" => {
            out.array(args.count() - 2);
            for name in args.from(2).iter() {
                match table::find(name) {
                    Some(spec) => tell_command(spec, out),
                    None => out.null_array(),
                }
            }
        }
        b"count" => out.count(table::all().count()),
        b"list" => return list(args, out),
        b"docs" => {
            let all: Vec<&Spec> = match args.count() {
                2 => table::all().collect(),
                _ => args.from(2).iter().filter_map(table::find).collect(),
            };
            out.map(all.len());
            for spec in all {
                out.text(spec.name);
                out.map(2);
                out.text("summary");
                out.text("See docs/REDIS.md.");
                out.text("group");
                out.text(table::group_of(spec).name);
            }
        }
        _ => return tell_keys(args.from(2), out),
    }
    Ok(())
}

/// The keys of a whole command.
fn tell_keys(asked: Args<'_>, out: &mut Reply) -> Done {
    let Some(spec) = table::find(asked.at(0)) else {
        return say("ERR Invalid command specified");
    };
    if !spec.takes(asked.count()) {
        return say("ERR Invalid number of arguments specified for command");
    }
    if !spec.has_keys() {
        return say("ERR The command has no key arguments");
    }
    let Some(counted) = spec.counted_keys_of(asked) else {
        return say("ERR Invalid arguments specified for command");
    };
    let keys: Vec<&[u8]> = spec.keys_of(asked).chain(counted.iter()).collect();
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
    let Some(wanted) = args.get(2) else {
        let groups = table::GROUPS.iter().map(|group| group.category);
        let all: Vec<&str> = ["read", "write", "admin"].into_iter().chain(groups).collect();
        out.array(all.len());
        all.iter().for_each(|category| out.text(category));
        return Ok(());
    };
    let wanted = wanted.to_ascii_lowercase();
    let listed: Vec<&Spec> = table::all().filter(|spec| is_of_category(spec, &wanted)).collect();
    if listed.is_empty() {
        let wanted = String::from_utf8_lossy(&wanted[..wanted.len().min(64)]).into_owned();
        return say(format!("ERR Unknown category '{wanted}'"));
    }
    out.array(listed.len());
    listed.iter().for_each(|spec| out.text(spec.name));
    Ok(())
}

/// Those of Redis' categories that are told of a command.
fn categories_of(spec: &Spec) -> impl Iterator<Item = &'static str> {
    let does = match spec.run {
        _ if spec.writes() => Some("write"),
        Run::Keys(_) => Some("read"),
        Run::Session(_) => None,
    };
    let administers = !matches!(spec.need, Need::Nothing | Need::Known)
        && matches!(spec.run, Run::Session(_))
        && spec.name != "watch";
    let Group { category, .. } = table::group_of(spec);
    does.into_iter().chain(administers.then_some("admin")).chain([*category])
}

fn is_of_category(spec: &Spec, wanted: &[u8]) -> bool {
    categories_of(spec).any(|category| category.as_bytes() == wanted)
}

/// One element of what `COMMAND` answers.
fn tell_command(spec: &Spec, out: &mut Reply) {
    out.array(10);
    out.text(spec.name);
    out.integer(i64::from(spec.arity));
    let mut flags = vec![if spec.writes() { "write" } else { "readonly" }];
    if matches!(spec.run, Run::Session(_)) {
        flags = vec!["fast"];
    }
    match spec.need {
        Need::Nothing => flags.push("no_auth"),
        Need::Admin | Need::Stats => flags.push("admin"),
        _ => {}
    }
    if spec.count_at.is_some() {
        flags.push("movablekeys");
    }
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    let (first, last, step) = spec.keys;
    [first, last, step].iter().for_each(|place| out.integer(i64::from(*place)));
    let categories: Vec<&str> = categories_of(spec).collect();
    let tell_categories = |out: &mut Reply| {
        out.set(categories.len());
        categories.iter().for_each(|category| out.simple(&format!("@{category}")));
    };
    tell_categories(out);
    (0..2).for_each(|_| out.array(0));
    let subs = subcommands(spec.name);
    out.array(subs.clone().count());
    for sub in subs {
        out.array(10);
        out.text(sub.name);
        out.integer(i64::from(sub.arity));
        out.set(0);
        let keys = if sub.takes(2) { [0; 3] } else { [first, last, step].map(i64::from) };
        keys.iter().for_each(|place| out.integer(*place));
        tell_categories(out);
        (0..3).for_each(|_| out.array(0));
    }
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
