//! `lithe token`: makes, lists and removes the tokens of `lithe serve`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lithe_server::auth::{Grant, NewToken, TokenFileError, Tokens};

use crate::failure::{Failure, Outcome};
use crate::notation::shown;
use crate::output::{Notices, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe token create --tokens tokens --name app --grant 'orders-*:read,write'
  lithe token list --tokens tokens
  lithe token remove --tokens tokens app

A running server reads the file again on SIGHUP.";

const CREATE_EXAMPLES: &str = "\
Examples:
  lithe token create --tokens tokens --name app --grant 'orders-*:read,write'
  lithe token create --tokens tokens --name prometheus --grant '*:stats'
  lithe token create --tokens tokens --name admin --grant '*:all' > admin.token

The token goes to standard output, this once: the file has a digest of it. Verbs are read, write,
admin, backup, stats, and all.";

const LIST_EXAMPLES: &str = "\
Examples:
  lithe token list --tokens tokens
  lithe token list --tokens /etc/lithe/tokens
  lithe token list --tokens tokens | cut -f2";

const REMOVE_EXAMPLES: &str = "\
Examples:
  lithe token remove --tokens tokens app
  lithe token remove --tokens tokens 9f8e7d6c5b4a3921
  lithe token remove --tokens /etc/lithe/tokens app && systemctl reload lithe";

/// Options of `lithe token`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TokenArgs {
    /// What to do
    #[command(subcommand)]
    pub action: Action,
}

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Make a token, add it to the file, and print it
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Print who has tokens, and what each may do
    #[command(after_help = LIST_EXAMPLES)]
    List(FileArgs),
    /// Take tokens out of the file, by name or id
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
}

/// The file of tokens.
#[derive(Args, Debug)]
pub struct FileArgs {
    /// The file of tokens
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
}

/// Options of `lithe token create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Where it is added.
    #[command(flatten)]
    pub file: FileArgs,

    /// Whose it is
    #[arg(long, value_name = "NAME")]
    pub name: String,

    /// What it may do, as KEYSPACES:VERBS; may be given again
    #[arg(long = "grant", value_name = "GRANT", required = true)]
    pub grants: Vec<Grant>,
}

/// Options of `lithe token remove`.
#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// Where it is taken out.
    #[command(flatten)]
    pub file: FileArgs,

    /// Its name or id
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Does what was asked for.
pub fn run(notices: Notices, args: &TokenArgs) -> Outcome {
    match &args.action {
        Action::Create(args) => create(args),
        Action::List(args) => list(args),
        Action::Remove(args) => remove(notices, args),
    }
}

fn create(args: &CreateArgs) -> Outcome {
    let is_word = args.name.bytes().all(|byte| byte.is_ascii_graphic()) && !args.name.is_empty();
    if !is_word || args.name.starts_with('#') {
        return Err(Failure::usage("--name is one word, of ASCII characters"));
    }
    let token = NewToken::make(&args.name, &args.grants).map_err(failure_of)?;
    token.add_to(&args.file.tokens).map_err(failure_of)?;
    let mut out = stdout();
    writeln!(out, "{}", token.text())?;
    Ok(out.flush()?)
}

fn list(args: &FileArgs) -> Outcome {
    let tokens = Tokens::read(&args.tokens).map_err(failure_of)?;
    let mut out = stdout();
    for token in tokens.list() {
        let grants = token.principal.rights().grants().iter();
        let grants: Vec<String> =
            grants.map(|grant| shown(&grant.to_string()).into_owned()).collect();
        writeln!(out, "{}\t{}\t{}", token.id, shown(token.principal.name()), grants.join(" "))?;
    }
    Ok(out.flush()?)
}

fn remove(notices: Notices, args: &RemoveArgs) -> Outcome {
    match Tokens::remove(&args.file.tokens, &args.name).map_err(failure_of)? {
        0 => {
            let (name, file) = (&args.name, args.file.tokens.display());
            let what = format!("there is no token of the name or id {name:?} in {file}");
            Err(Failure::NotFound { what })
        }
        count => {
            notices.say(format!("{count} taken out; a running server reads the file on SIGHUP"));
            Ok(())
        }
    }
}

fn failure_of(error: TokenFileError) -> Failure {
    match error {
        TokenFileError::Io { path, source } => Failure::Input { path, source },
        TokenFileError::Random => Failure::Other(Box::new(error)),
        error => Failure::usage(shown(&error.to_string())),
    }
}
