//! Connections and the server itself.

use std::collections::BTreeSet;

use lithedb::WriteBatch;

use super::about;
use crate::auth::Verb;
use crate::config::Durability;
use crate::redis::call::{Done, Failure, NOT_AN_INTEGER, SYNTAX, say, wrong_arity};
use crate::redis::clients::name_of;
use crate::redis::databases::DATABASE_COUNT;
use crate::redis::frame::Args;
use crate::redis::info::{self, REDIS_VERSION, Told};
use crate::redis::number::integer;
use crate::redis::queue::Queue;
use crate::redis::reply::{Reply, Version};
use crate::redis::session::{Quiet, Session};

pub fn auth(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    match args.count() {
        2 => session.authenticate(None, args.at(1))?,
        3 => session.authenticate(Some(args.at(1)), args.at(2))?,
        _ => return say(SYNTAX),
    }
    out.ok();
    Ok(())
}

pub fn hello(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    let version = match args.get(1).map(integer) {
        None => out.version,
        Some(Some(2)) => Version::Two,
        Some(Some(3)) => Version::Three,
        Some(None) => return say("ERR Protocol version is not an integer or out of range"),
        Some(Some(_)) => return say("NOPROTO unsupported protocol version"),
    };
    let (mut at, mut name) = (2, None);
    let mut token = None;
    while at < args.count() {
        match () {
            () if args.is(at, "AUTH") && at + 2 < args.count() => {
                token = Some((args.at(at + 1), args.at(at + 2)));
                at += 3;
            }
            () if args.is(at, "SETNAME") && at + 1 < args.count() => {
                name = Some(name_of(args.at(at + 1)).map_or_else(bad_name, Ok)?);
                at += 2;
            }
            () => {
                let option = String::from_utf8_lossy(args.at(at));
                return say(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
    }
    if let Some((name, token)) = token {
        session.authenticate(Some(name), token)?;
    }
    if session.principal.is_none() {
        return say(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        session.client.shown().name = name;
    }
    out.version = version;
    out.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.text(key);
        out.text(value);
    }
    out.text("proto");
    out.integer(if version == Version::Three { 3 } else { 2 });
    out.text("id");
    out.integer(session.client.id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        out.text(key);
        out.text(value);
    }
    out.text("modules");
    out.array(0);
    Ok(())
}

pub fn quit(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    session.is_over = true;
    out.ok();
    Ok(())
}

pub fn reset(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    session.answer_again(out);
    session.reset();
    session.client.shown().name.clear();
    out.version = Version::Two;
    out.simple("RESET");
    Ok(())
}

pub fn ping(_session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    match args.count() {
        1 => out.simple("PONG"),
        2 => out.bulk(args.at(1)),
        _ => return wrong_arity("ping"),
    }
    Ok(())
}

pub fn echo(_session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    out.bulk(args.at(1));
    Ok(())
}

pub fn select(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    let Some(number) = integer(args.at(1)) else { return say(NOT_AN_INTEGER) };
    match usize::try_from(number).ok().filter(|number| *number < DATABASE_COUNT) {
        Some(number) => session.choose(number),
        None => return say("ERR DB index is out of range"),
    }
    out.ok();
    Ok(())
}

pub fn time(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_else(|_| session.shared.store.began().elapsed());
    out.array(2);
    out.text(&now.as_secs().to_string());
    out.text(&now.subsec_micros().to_string());
    Ok(())
}

fn bad_name<T>() -> Result<T, Failure> {
    say("ERR Client names cannot contain spaces, newlines or special characters.")
}

pub fn client(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    let now = session.shared.store.began().elapsed();
    session.show(out.version); // As it is now.
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"id" => out.integer(session.client.id as i64),
        b"getname" => {
            let name = session.client.shown().name.clone();
            out.bulk_or_null(Some(name).filter(|name| !name.is_empty()));
        }
        b"setname" => {
            session.client.shown().name = name_of(args.at(2)).map_or_else(bad_name, Ok)?;
            out.ok();
        }
        b"setinfo" => {
            let Some(value) = name_of(args.at(3)) else {
                return say("ERR lib-name cannot contain spaces, newlines or special characters.");
            };
            match args.at(2).to_ascii_lowercase().as_slice() {
                b"lib-name" => session.client.shown().library = value,
                b"lib-ver" => session.client.shown().library_version = value,
                _ => return say("ERR Unrecognized option"),
            }
            out.ok();
        }
        b"info" => out.verbatim(&(session.client.line(now) + "\n")),
        b"list" => {
            must_administer(session, "client|list")?;
            list(session, args, out)?;
        }
        b"kill" => {
            must_administer(session, "client|kill")?;
            kill(session, args, out)?;
        }
        b"getredir" => out.integer(-1),
        b"reply" => match args.at(2).to_ascii_lowercase().as_slice() {
            b"on" => {
                session.answer_again(out);
                out.ok();
            }
            b"off" => session.be_quiet(out),
            b"skip" if session.quiet == Quiet::Always => {}
            b"skip" => session.quiet = Quiet::Next,
            _ => return say(SYNTAX),
        },
        b"no-evict" | b"no-touch" if args.is(2, "on") || args.is(2, "off") => out.ok(),
        b"no-evict" | b"no-touch" => return say(SYNTAX),
        _ => return about::unknown_subcommand(args),
    }
    Ok(())
}

pub fn must_administer(session: &Session, command: &str) -> Done {
    if session.may_with_all(Verb::Admin) {
        return Ok(());
    }
    let user = session.principal.as_ref().map_or("", |principal| principal.name());
    say(format!("NOPERM User {user} has no permissions to run the '{command}' command"))
}

/// `CLIENT LIST`, all or those of a type or with these numbers.
fn list(session: &Session, args: Args<'_>, out: &mut Reply) -> Done {
    let mut clients = session.shared.redis.clients.all();
    if args.is(2, "type") && args.count() == 4 {
        match args.at(3).to_ascii_lowercase().as_slice() {
            b"normal" => {}
            // Nobody is one of these.
            b"master" | b"replica" | b"slave" | b"pubsub" => clients.clear(),
            _ => {
                let kind = String::from_utf8_lossy(args.at(3)).into_owned();
                return say(format!("ERR Unknown client type '{kind}'"));
            }
        }
    } else if args.is(2, "id") && args.count() > 3 {
        let mut ids = BTreeSet::new();
        for id in args.from(3).iter() {
            match integer(id).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0) {
                Some(id) => ids.insert(id),
                None => return say("ERR Invalid client ID"),
            };
        }
        clients.retain(|client| ids.contains(&client.id));
    } else if args.count() > 2 {
        return say(SYNTAX);
    }
    let now = session.shared.store.began().elapsed();
    let lines: String = clients.iter().map(|client| client.line(now) + "\n").collect();
    out.verbatim(&lines);
    Ok(())
}

fn kill(session: &Session, args: Args<'_>, out: &mut Reply) -> Done {
    let clients = session.shared.redis.clients.all();
    if args.count() == 3 {
        let found = clients.iter().find(|client| args.at(2) == client.peer.to_string().as_bytes());
        let Some(found) = found else { return say("ERR No such client") };
        found.kill();
        out.ok();
        return Ok(());
    }
    let (mut id, mut address, mut local, mut user) = (None, None, None, None);
    let mut spares_itself = true;
    for at in (2..args.count()).step_by(2) {
        let Some(value) = args.get(at + 1) else { return say(SYNTAX) };
        let text = String::from_utf8_lossy(value).into_owned();
        match args.at(at).to_ascii_lowercase().as_slice() {
            b"id" => match integer(value).filter(|id| *id > 0) {
                Some(found) => id = Some(found as u64),
                None => return say("ERR client-id should be greater than 0"),
            },
            b"addr" => address = Some(text),
            b"laddr" => local = Some(text),
            b"user" => user = Some(text),
            b"skipme" => spares_itself = !value.eq_ignore_ascii_case(b"no"),
            _ => return say(SYNTAX),
        }
    }
    let mut count = 0;
    for client in clients {
        let is_meant = id.is_none_or(|id| id == client.id)
            && address.as_ref().is_none_or(|address| *address == client.peer.to_string())
            && local.as_ref().is_none_or(|local| *local == client.local_text())
            && user.as_ref().is_none_or(|user| *user == client.shown().user);
        if is_meant && !(spares_itself && client.id == session.client.id) {
            client.kill();
            count += 1;
        }
    }
    out.count(count);
    Ok(())
}

pub fn info(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    let asked: Vec<String> =
        args.from(1).iter().map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
    let told = if session.may_with_all(Verb::Stats) { Told::All } else { Told::Little };
    out.verbatim(&info::text(&session.shared, &asked, told));
    Ok(())
}

pub fn config(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"get" => {}
        b"set" => return say("ERR CONFIG SET is not for this server: it is told when it starts"),
        b"resetstat" | b"rewrite" => return say("ERR this is not for this server"),
        _ => return about::unknown_subcommand(args),
    }
    let limits = &session.shared.limits;
    let (appends, syncs) = match session.shared.config.durability {
        Durability::Always => ("yes", "always"),
        Durability::EverySecond => ("yes", "everysec"),
        Durability::Buffered => ("no", "no"),
    };
    let port = session.shared.redis_address.map_or(0, |address| address.port());
    let settings = [
        ("appendfsync", syncs.to_owned()),
        ("appendonly", appends.to_owned()),
        ("databases", DATABASE_COUNT.to_string()),
        ("maxclients", limits.connections.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-clients", limits.redis_memory.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", port.to_string()),
        ("proto-max-bulk-len", limits.body_size.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ];
    let mut steps = crate::redis::glob::Steps(1_000_000);
    let mut found = Vec::new();
    for (name, value) in &settings {
        for pattern in args.from(2).iter() {
            let pattern = pattern.to_ascii_lowercase();
            if crate::redis::glob::matches(&pattern, name.as_bytes(), &mut steps) == Some(true) {
                found.push((name, value));
                break;
            }
        }
    }
    out.map(found.len());
    for (name, value) in found {
        out.text(name);
        out.text(value);
    }
    Ok(())
}

/// There are no replicas.
pub fn role(_session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    out.array(3);
    out.text("master");
    out.integer(0);
    out.array(0);
    Ok(())
}

/// No command is kept with its arguments: metrics have how long commands take, and the log of
/// requests each of them by its name.
pub fn slowlog(_session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"get" => match args.get(2).map(integer) {
            _ if args.count() > 3 => return wrong_arity("slowlog|get"),
            None | Some(Some(-1..)) => out.array(0),
            Some(_) => return say("ERR count should be greater than or equal to -1"),
        },
        b"len" => out.integer(0),
        b"reset" => out.ok(),
        _ => return about::unknown_subcommand(args),
    }
    Ok(())
}

/// No events are watched: metrics have how long things take.
pub fn latency(_session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"latest" | b"history" => out.array(0),
        b"reset" => out.integer(0),
        _ => return about::unknown_subcommand(args),
    }
    Ok(())
}

/// All that was answered is durable, or as durable as asked for: since now.
pub fn lastsave(_session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    out.integer(now.map_or(0, |now| now.as_secs() as i64));
    Ok(())
}

pub fn save(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    session.shared.store.db().sync()?;
    match args.is(0, "bgsave") {
        true => out.simple("Background saving started"),
        false => out.ok(),
    }
    Ok(())
}

/// Both ways of flushing are the same here, and others are none.
pub fn check_flush(args: Args<'_>) -> Done {
    match args.count() {
        1 => Ok(()),
        2 if args.is(1, "async") || args.is(1, "sync") => Ok(()),
        _ => say(SYNTAX),
    }
}

/// Deletes everything of all databases, in one commit.
pub fn flushall(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    check_flush(args)?;
    let store = &session.shared.store;
    let mut batch = WriteBatch::new();
    for database in session.shared.redis.databases.iter() {
        let handles = database.handles();
        for keyspace in [handles.strings, handles.second].into_iter().flatten() {
            batch.delete_prefix(&keyspace, b"");
        }
    }
    store.buffered(|| store.db().write_with(batch, lithedb::Durability::Buffered))?;
    session.has_written = true;
    out.ok();
    Ok(())
}

/// There are no replicas.
pub fn wait(_session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    for at in [1, 2] {
        if integer(args.at(at)).is_none() {
            return say(NOT_AN_INTEGER);
        }
    }
    out.integer(0);
    Ok(())
}

pub fn swapdb(_session: &mut Session, _args: Args<'_>, _out: &mut Reply) -> Done {
    say("ERR SWAPDB is not for this server: databases are keyspaces that others know by name")
}

pub fn multi(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    if session.queue.is_some() {
        return say("ERR MULTI calls can not be nested");
    }
    session.queue = Some(Queue::of(session.database));
    out.ok();
    Ok(())
}

pub fn exec(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    session.execute_queue(out)
}

pub fn discard(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    if session.queue.take().is_none() {
        return say("ERR DISCARD without MULTI");
    }
    session.forget_watches();
    out.ok();
    Ok(())
}

pub fn watch(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    session.watch(args, out)
}

pub fn unwatch(session: &mut Session, _args: Args<'_>, out: &mut Reply) -> Done {
    session.forget_watches();
    out.ok();
    Ok(())
}
