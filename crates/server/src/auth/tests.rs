//! Tests of tokens and rights.

use super::*;

const NOW: Duration = Duration::from_secs(1000);

fn here() -> IpAddr {
    "10.0.0.7".parse().unwrap()
}

fn grants(texts: &[&str]) -> Vec<Grant> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn tokens_are_known_by_the_file_and_may_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let app = NewToken::make("app", &grants(&["orders-*:read,write", "a:b:read"])).unwrap();
    let boss = NewToken::make("boss", &grants(&["*:all"])).unwrap();
    app.add_to(&file).unwrap();
    boss.add_to(&file).unwrap();
    let authority = Authority::open(Some(&file), 10).unwrap();
    assert!(authority.without_token().is_none());
    let known = |token: &str| match authority.with_token(token, here(), NOW) {
        Known::As(principal) => Some(principal),
        _ => None,
    };
    let app_known = known(app.text()).unwrap();
    assert_eq!(app_known.name(), "app");
    for (verb, keyspace, may) in [
        (Verb::Read, "orders-1", true),
        (Verb::Write, "orders-", true),
        (Verb::Admin, "orders-1", false),
        (Verb::Read, "orders", false),
        (Verb::Read, "a:b", true),
        (Verb::Write, "a:b", false),
        (Verb::Read, "*", false),
    ] {
        assert_eq!(app_known.may(verb, keyspace), may, "{verb:?} {keyspace}");
    }
    assert!(!app_known.may_with_all(Verb::Read));
    let boss_known = known(boss.text()).unwrap();
    assert!(boss_known.may(Verb::Backup, "any") && boss_known.may_with_all(Verb::Stats));
    let (id, _) = app.text().rsplit_once('_').unwrap();
    let (_, secret) = boss.text().rsplit_once('_').unwrap();
    let mixed = format!("{id}_{secret}");
    for wrong in [&mixed, "", "lithe_", "lithe_0000000000000000_", &app.text().to_uppercase()] {
        assert!(known(wrong).is_none(), "{wrong}");
    }
    let listed = Tokens::read(&file).unwrap().list();
    let shown: Vec<_> = listed.iter().map(|token| token.principal.name()).collect();
    assert_eq!(shown, ["app", "boss"]);
    assert_eq!(listed[0].principal.rights().grants()[0].to_string(), "orders-*:read,write");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(secret) && !format!("{authority:?} {app:?}").contains(secret));
}

#[test]
fn a_token_that_is_removed_is_not_known_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let tokens: Vec<_> = ["app", "boss", "app"]
        .map(|name| NewToken::make(name, &grants(&["*:read"])).unwrap())
        .into();
    tokens.iter().for_each(|token| token.add_to(&file).unwrap());
    let authority = Authority::open(Some(&file), 10).unwrap();
    let is_known =
        |token: &NewToken| matches!(authority.with_token(token.text(), here(), NOW), Known::As(_));
    assert!(tokens.iter().all(is_known));
    assert_eq!(Tokens::remove(&file, "nobody").unwrap(), 0);
    assert_eq!(Tokens::remove(&file, "app").unwrap(), 2);
    authority.reload(&file).unwrap();
    assert_eq!(tokens.iter().map(is_known).collect::<Vec<_>>(), [false, true, false]);
    let id = Tokens::read(&file).unwrap().list()[0].id.clone();
    assert_eq!(Tokens::remove(&file, &id).unwrap(), 1);
    assert_eq!(Tokens::read(&file).unwrap().count(), 0);
}

#[test]
fn wrong_tokens_are_counted_by_address_and_keep_no_right_one_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let right = NewToken::make("app", &[]).unwrap();
    right.add_to(&file).unwrap();
    let authority = Authority::open(Some(&file), 3).unwrap();
    for _ in 0..3 {
        assert!(matches!(authority.with_token("wrong", here(), NOW), Known::Nobody));
    }
    assert!(matches!(authority.with_token("wrong", here(), NOW), Known::TooOften));
    assert!(matches!(authority.with_token(right.text(), here(), NOW), Known::As(_)));
    let elsewhere = "10.0.0.8".parse().unwrap();
    assert!(matches!(authority.with_token("wrong", elsewhere, NOW), Known::Nobody));
    let later = NOW + Duration::from_secs(61);
    assert!(matches!(authority.with_token("wrong", here(), later), Known::Nobody));
    // Addresses of one network of version 6 are one; and there is an end to remembering.
    for number in 0..10_000_u128 {
        let address = IpAddr::V6((number << 64 | number).into());
        assert!(!matches!(authority.with_token("wrong", address, later), Known::As(_)));
    }
}

#[test]
fn names_are_one_word_so_that_no_line_says_something_else() {
    for name in ["", "a b", "a\n00 all *:all", "a\t", "\u{1b}[2J", "a\u{a0}b", &"x".repeat(129)] {
        let made = NewToken::make(name, &grants(&["*:read"]));
        assert!(matches!(made, Err(TokenFileError::Name { .. })), "{name:?}");
    }
    assert!(NewToken::make("orders@example.org", &[]).is_ok());
}

#[test]
fn files_that_are_none_are_refused_by_line() {
    let id = "00112233445566ff";
    let digest = "ab".repeat(32);
    let head = "lithe tokens 1\n# a comment\n\n";
    let good = format!("{head}{id} {digest} app *:read\n");
    assert_eq!(Tokens::parse(&good).unwrap().count(), 1);
    for (text, line) in [
        (String::new(), 1),
        (format!("{id} {digest} app *:read\n"), 1),
        (format!("{head}{id}\n"), 4),
        (format!("{head}{id} {digest}\n"), 4),
        (format!("{head}{id} {digest} app *:reed\n"), 4),
        (format!("{head}{id} {digest} app a*b:read\n"), 4),
        (format!("{head}{id} {digest} app read\n"), 4),
        (format!("{head}+{} {digest} app *:read\n", &id[1..]), 4),
        (format!("{good}{id} {digest} again *:read\n"), 5),
    ] {
        assert_eq!(Tokens::parse(&text).unwrap_err().0, line, "{text}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let token = NewToken::make("app", &[]).unwrap();
    token.add_to(&file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Authority::open(Some(&file), 1), Err(TokenFileError::Exposed { .. })));
    assert!(matches!(token.add_to(&file), Err(TokenFileError::Exposed { .. })));
}
