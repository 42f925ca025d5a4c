//! `ACL`: who there is and what they may do, as the file of tokens says. What is a user in Redis is
//! a name of tokens here; rights are grants on keyspaces, and no patterns of keys.

use std::collections::BTreeMap;

use super::about;
use super::server::must_administer;
use crate::auth::{Principal, Verb};
use crate::redis::call::Done;
use crate::redis::frame::Args;
use crate::redis::reply::Reply;
use crate::redis::session::Session;

/// The verbs that commands of this protocol need.
const VERBS: [(Verb, &str); 3] =
    [(Verb::Read, "+@read"), (Verb::Write, "+@write"), (Verb::Admin, "+@admin")];

pub fn acl(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Done {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"whoami" => {
            out.text(session.principal.as_ref().map_or("default", |principal| principal.name()));
        }
        b"cat" => return about::categories(args, out),
        b"list" => {
            must_administer(session, "acl|list")?;
            let lines = lines(session);
            out.array(lines.len());
            lines.iter().for_each(|line| out.text(line));
        }
        b"users" => {
            must_administer(session, "acl|users")?;
            let users = users(session);
            out.array(users.len());
            users.keys().for_each(|name| out.text(name));
        }
        b"getuser" => {
            must_administer(session, "acl|getuser")?;
            let users = users(session);
            match str::from_utf8(args.at(2)).ok().and_then(|name| users.get(name)) {
                Some(tokens) => tell_user(session, tokens, out),
                None => out.null(),
            }
        }
        _ => return about::unknown_subcommand(args),
    }
    Ok(())
}

/// Whoever can connect, or those of whom there are tokens, by name.
fn users(session: &Session) -> BTreeMap<String, Vec<Principal>> {
    let authority = &session.shared.authority;
    let all = match authority.without_token() {
        Some(anybody) => vec![anybody],
        None => authority.principals(),
    };
    let mut users: BTreeMap<String, Vec<Principal>> = BTreeMap::new();
    for principal in all {
        users.entry(principal.name().to_owned()).or_default().push(principal);
    }
    users
}

fn is_open(session: &Session) -> bool {
    session.shared.authority.without_token().is_some()
}

/// A line for each token.
fn lines(session: &Session) -> Vec<String> {
    if is_open(session) {
        return vec!["user default on nopass ~* &* +@all".to_owned()];
    }
    let of_token = |token: &Principal| {
        let grants: Vec<String> = token.grants().iter().map(ToString::to_string).collect();
        format!("user {} on {}", token.name(), grants.join(" ")).trim_end().to_owned()
    };
    users(session).values().flatten().map(of_token).collect()
}

fn tell_user(session: &Session, tokens: &[Principal], out: &mut Reply) {
    let texts = |texts: &[&str], out: &mut Reply| {
        out.array(texts.len());
        texts.iter().for_each(|text| out.text(text));
    };
    let is_all = tokens.iter().any(|token| VERBS.iter().all(|(verb, _)| token.may_with_all(*verb)));
    let commands = match is_all {
        true => "+@all".to_owned(),
        false => {
            let may = |verb| tokens.iter().any(|token| token.may_somewhere(verb));
            let allowed = VERBS.iter().filter(|(verb, _)| may(*verb)).map(|(_, text)| *text);
            std::iter::once("-@all").chain(allowed).collect::<Vec<_>>().join(" ")
        }
    };
    let grants: Vec<String> =
        tokens.iter().flat_map(Principal::grants).map(ToString::to_string).collect();
    out.map(7);
    out.text("flags");
    texts(if is_open(session) { &["on", "nopass"] } else { &["on"] }, out);
    out.text("passwords");
    out.array(0);
    for (name, text) in [("commands", &*commands), ("keys", "~*"), ("channels", "&*")] {
        out.text(name);
        out.text(text);
    }
    out.text("selectors");
    out.array(0);
    out.text("grants");
    texts(&grants.iter().map(String::as_str).collect::<Vec<_>>(), out);
}
