//! `lithe tx`: runs a script of writes as one transaction.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lithedb::{Db, Error, Expiry, Keyspace, Transaction};

use crate::args::Globals;
use crate::database::{close, open_or_create_keyspace};
use crate::failure::{Failure, Outcome};
use crate::input::open_source;
use crate::notation::{MomentError, parse_duration, parse_escaped, parse_time};
use crate::output::{ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  printf 'put a 1\\nput b 2\\n' | lithe --db my.lithe tx
  lithe --db my.lithe tx transfer.txt
  lithe --db my.lithe tx --format json < script

One operation a line, its fields parted by blanks:
  put KEY VALUE             set a key
  put-ttl KEY VALUE TTL     set a key, which expires after so long, as in 10m
  put-until KEY VALUE TIME  set a key, which expires then, as in 2026-11-22T18:00:00Z
  expire KEY TTL|TIME|never has a key expire, with the value that it has
  merge KEY OPERAND         merge an operand into the value of a key, unread
  delete KEY                delete a key
  delete-range FROM TO      delete the keys from FROM on and before TO
  delete-prefix PREFIX      delete the keys that start with PREFIX
  expect KEY VALUE          go on only if KEY has this value
  expect-absent KEY         go on only if KEY is not there
  payload TEXT              keep this with the commit; `lithe commits` prints it
  keyspace NAME             the lines that follow are about this keyspace
Empty lines, and those that start with #, are left out. Fields are read as `--key-format escaped`
reads them: \\x20 is a blank, \\\\ a backslash, and \"\" stands for nothing. The keyspaces are
created when they do not exist. All of it happens, or nothing.";

/// Options of `lithe tx`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TxArgs {
    /// The script; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// How the result is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// One line of a script.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    PutFor(Vec<u8>, Vec<u8>, Lifetime),
    Expire(Vec<u8>, Lifetime),
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    DeletePrefix(Vec<u8>),
    Expect(Vec<u8>, Option<Vec<u8>>),
    Payload(Vec<u8>),
    Keyspace(String),
}

/// How long something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    For(Duration),
    Until(Expiry),
}

/// Runs the script.
pub fn run(globals: &Globals, args: &TxArgs) -> Outcome {
    // All of it first: a script with a mistake does not even open the database.
    let steps = read_script(&args.file)?;
    let (db, keyspace) = open_or_create_keyspace(globals)?;
    let (count, seqno) = commit(&db, keyspace, &steps)?;
    close(&db)?;
    let mut out = stdout();
    match args.format {
        ReportFormat::Table => writeln!(out, "{count} operations committed as {seqno}")?,
        ReportFormat::Json => {
            writeln!(out, "{{\"operations\":{count},\"stamp\":{}}}", seqno.as_u64())?;
        }
    }
    Ok(out.flush()?)
}

fn read_script(file: &Path) -> Result<Vec<(usize, Step)>, Failure> {
    let mut source = open_source(file)?;
    let mut script = Vec::new();
    if let Err(error) = source.read_to_end(&mut script) {
        return Err(source.failure(error));
    }
    let mut steps = Vec::new();
    for (line, number) in script.split(|byte| *byte == b'\n').zip(1..) {
        let step = parse_line(line);
        let step = step.map_err(|what| Failure::usage(format!("line {number}: {what}")))?;
        steps.extend(step.map(|step| (number, step)));
    }
    Ok(steps)
}

fn parse_line(line: &[u8]) -> Result<Option<Step>, String> {
    let mut fields =
        line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect::<Vec<_>>();
    if fields.first().is_none_or(|first| first.starts_with(b"#")) {
        return Ok(None);
    }
    let verb = String::from_utf8_lossy(fields.remove(0)).into_owned();
    let fields: Result<Vec<Vec<u8>>, String> = fields.into_iter().map(parse_field).collect();
    let fields = match <[Vec<u8>; 3]>::try_from(fields?) {
        Ok(three) => return parse_three(&verb, three).map(Some),
        Err(fields) => fields,
    };
    let step = match (verb.as_str(), <[Vec<u8>; 2]>::try_from(fields)) {
        ("put", Ok([key, value])) => Step::Put(key, value),
        ("expire", Ok([key, when])) => Step::Expire(key, parse_when(&when)?),
        ("put-ttl" | "put-until", _) => return Err(format!("{verb} takes 3 fields")),
        ("merge", Ok([key, operand])) => Step::Merge(key, operand),
        ("expect", Ok([key, value])) => Step::Expect(key, Some(value)),
        ("delete-range", Ok([from, to])) => Step::DeleteRange(from, to),
        ("put" | "expire" | "merge" | "expect" | "delete-range", Err(_)) => {
            return Err(format!("{verb} takes 2 fields"));
        }
        (_, Ok(_)) if ONE_FIELD.contains(&verb.as_str()) => {
            return Err(format!("{verb} takes 1 field"));
        }
        (_, Err(fields)) => match (verb.as_str(), <[Vec<u8>; 1]>::try_from(fields)) {
            ("delete", Ok([key])) => Step::Delete(key),
            ("delete-prefix", Ok([prefix])) => Step::DeletePrefix(prefix),
            ("expect-absent", Ok([key])) => Step::Expect(key, None),
            ("payload", Ok([payload])) => Step::Payload(payload),
            ("keyspace", Ok([name])) => {
                let name = String::from_utf8(name);
                Step::Keyspace(name.map_err(|_| "a name that is not text".to_owned())?)
            }
            (known, Err(_)) if ONE_FIELD.contains(&known) => {
                return Err(format!("{verb} takes 1 field"));
            }
            _ => return Err(format!("there is no operation {verb:?}")),
        },
        _ => return Err(format!("there is no operation {verb:?}")),
    };
    Ok(Some(step))
}

const ONE_FIELD: [&str; 5] = ["delete", "delete-prefix", "expect-absent", "payload", "keyspace"];

fn parse_three(verb: &str, [key, value, when]: [Vec<u8>; 3]) -> Result<Step, String> {
    let text = text_of(&when);
    let wrong = |error: MomentError| error.to_string();
    let lifetime = match verb {
        "put-ttl" => Lifetime::For(parse_duration(&text).map_err(wrong)?),
        "put-until" => Lifetime::Until(parse_time(&text).map_err(wrong)?.into()),
        "put" | "expire" | "merge" | "expect" | "delete-range" => {
            return Err(format!("{verb} takes 2 fields"));
        }
        one if ONE_FIELD.contains(&one) => return Err(format!("{verb} takes 1 field")),
        _ => return Err(format!("there is no operation {verb:?}")),
    };
    Ok(Step::PutFor(key, value, lifetime))
}

fn parse_when(field: &[u8]) -> Result<Lifetime, String> {
    let text = text_of(field);
    if text == "never" {
        return Ok(Lifetime::Until(Expiry::Never));
    }
    match parse_time(&text) {
        Ok(time) => Ok(Lifetime::Until(time.into())),
        Err(error @ MomentError::Before1970(_)) => Err(error.to_string()),
        Err(_) => match parse_duration(&text) {
            Ok(duration) => Ok(Lifetime::For(duration)),
            Err(error) => Err(error.to_string()),
        },
    }
}

fn text_of(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn parse_field(field: &[u8]) -> Result<Vec<u8>, String> {
    if field == b"\"\"" { Ok(Vec::new()) } else { parse_escaped(field) }
}

/// Runs the steps in a transaction, again after conflicts; how many wrote, and the commit's stamp.
fn commit(
    db: &Db,
    keyspace: Keyspace,
    steps: &[(usize, Step)],
) -> Result<(usize, lithedb::SeqNo), Failure> {
    // Keyspaces are not part of transactions.
    let mut keyspaces = vec![keyspace];
    for (_, step) in steps {
        if let Step::Keyspace(name) = step {
            keyspaces.push(db.keyspace_or_create(name)?);
        }
    }
    loop {
        let mut transaction = db.begin_update();
        let count = apply(&mut transaction, &keyspaces, steps)?;
        match transaction.commit() {
            Ok(seqno) => return Ok((count, seqno)),
            Err(Error::Conflict) => {} // Another thread of this process; there is none now.
            Err(error) => return Err(error.into()),
        }
    }
}

fn apply(
    transaction: &mut Transaction,
    keyspaces: &[Keyspace],
    steps: &[(usize, Step)],
) -> Result<usize, Failure> {
    let (mut at, mut count) = (0, 0);
    for (line, step) in steps {
        let keyspace = &keyspaces[at];
        match step {
            Step::Put(key, value) => transaction.put(keyspace, key, value)?,
            Step::PutFor(key, value, lifetime) => {
                put_for(transaction, keyspace, (key, value), *lifetime)?;
            }
            Step::Expire(key, lifetime) => {
                let Some(value) = transaction.get(keyspace, key)? else {
                    let what = format!("line {line}: the key is not there; nothing was done");
                    return Err(Failure::NotFound { what });
                };
                put_for(transaction, keyspace, (key, &value), *lifetime)?;
            }
            Step::Merge(key, operand) => transaction.merge(keyspace, key, operand)?,
            Step::Delete(key) => transaction.delete(keyspace, key)?,
            Step::DeleteRange(from, to) => {
                transaction.delete_range(keyspace, from.as_slice()..to.as_slice())?;
            }
            Step::DeletePrefix(prefix) => transaction.delete_prefix(keyspace, prefix)?,
            Step::Expect(key, expected) => {
                let found = transaction.get(keyspace, key)?;
                if found.as_deref() != expected.as_deref() {
                    let what = format!("line {line}: the key is not as expected; nothing was done");
                    return Err(Failure::NotFound { what });
                }
                continue;
            }
            Step::Payload(payload) => {
                transaction.set_payload(payload.as_slice())?;
                continue;
            }
            Step::Keyspace(_) => {
                at += 1;
                continue;
            }
        }
        count += 1;
    }
    Ok(count)
}

fn put_for(
    transaction: &mut Transaction,
    keyspace: &Keyspace,
    (key, value): (&[u8], &[u8]),
    lifetime: Lifetime,
) -> Result<(), Error> {
    match lifetime {
        Lifetime::For(ttl) => transaction.put_with_ttl(keyspace, key, value, ttl),
        Lifetime::Until(expiry) => transaction.put_until(keyspace, key, value, expiry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn parse(line: &str) -> Result<Option<Step>, String> {
        parse_line(line.as_bytes())
    }

    #[test]
    fn lines_are_operations_comments_or_mistakes() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("  # put a b"), Ok(None));
        let put = Step::Put(b"a b".to_vec(), b"\\".to_vec());
        assert_eq!(parse(r"put   a\x20b \\ "), Ok(Some(put)));
        assert_eq!(parse("put k \"\""), Ok(Some(Step::Put(b"k".to_vec(), Vec::new()))));
        let merge = Step::Merge(b"k".to_vec(), b"v".to_vec());
        assert_eq!(parse("merge k v"), Ok(Some(merge)));
        let ttl = Lifetime::For(Duration::from_secs(600));
        let put = Step::PutFor(b"k".to_vec(), b"v".to_vec(), ttl);
        assert_eq!(parse("put-ttl k v 10m"), Ok(Some(put)));
        assert_eq!(parse("expire k 10m"), Ok(Some(Step::Expire(b"k".to_vec(), ttl))));
        let never = Step::Expire(b"k".to_vec(), Lifetime::Until(Expiry::Never));
        assert_eq!(parse("expire k never"), Ok(Some(never)));
        let at = Lifetime::Until(SystemTime::UNIX_EPOCH.into());
        let put = Step::PutFor(b"k".to_vec(), b"v".to_vec(), at);
        assert_eq!(parse("put-until k v 1970-01-01T00:00:00Z"), Ok(Some(put)));
        assert_eq!(parse("expect-absent k"), Ok(Some(Step::Expect(b"k".to_vec(), None))));
        assert_eq!(parse("keyspace users"), Ok(Some(Step::Keyspace("users".into()))));
        assert_eq!(parse("delete-prefix p"), Ok(Some(Step::DeletePrefix(b"p".to_vec()))));
        for (line, said) in [
            ("put k", "put takes 2 fields"),
            ("merge k", "merge takes 2 fields"),
            ("put k v w", "put takes 2 fields"),
            ("put-ttl k v", "put-ttl takes 3 fields"),
            ("put-ttl k", "put-ttl takes 3 fields"),
            ("put-ttl k v soon", "a duration is a number"),
            ("put-until k v 10m", "no time"),
            ("delete a b c", "delete takes 1 field"),
            ("expire k", "expire takes 2 fields"),
            ("delete", "delete takes 1 field"),
            ("delete a b", "delete takes 1 field"),
            ("frobnicate a", "no operation"),
            ("frobnicate a b", "no operation"),
            (r"delete \q", ""),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
