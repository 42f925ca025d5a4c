//! `lithe tx`: runs a script of writes as one transaction.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lithedb::{Db, Error, Keyspace, Transaction};

use crate::args::Globals;
use crate::database::{close, open_or_create_keyspace};
use crate::failure::{Failure, Outcome};
use crate::input::open_source;
use crate::notation::parse_escaped;
use crate::output::{ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  printf 'put a 1\\nput b 2\\n' | lithe --db my.lithe tx
  lithe --db my.lithe tx transfer.txt
  lithe --db my.lithe tx --format json < script

One operation a line, its fields parted by blanks:
  put KEY VALUE             set a key
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
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    DeletePrefix(Vec<u8>),
    Expect(Vec<u8>, Option<Vec<u8>>),
    Payload(Vec<u8>),
    Keyspace(String),
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
    let step = match (verb.as_str(), <[Vec<u8>; 2]>::try_from(fields?)) {
        ("put", Ok([key, value])) => Step::Put(key, value),
        ("merge", Ok([key, operand])) => Step::Merge(key, operand),
        ("expect", Ok([key, value])) => Step::Expect(key, Some(value)),
        ("delete-range", Ok([from, to])) => Step::DeleteRange(from, to),
        ("put" | "merge" | "expect" | "delete-range", Err(_)) => {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(parse("expect-absent k"), Ok(Some(Step::Expect(b"k".to_vec(), None))));
        assert_eq!(parse("keyspace users"), Ok(Some(Step::Keyspace("users".into()))));
        assert_eq!(parse("delete-prefix p"), Ok(Some(Step::DeletePrefix(b"p".to_vec()))));
        for (line, said) in [
            ("put k", "put takes 2 fields"),
            ("merge k", "merge takes 2 fields"),
            ("put k v w", "put takes 2 fields"),
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
