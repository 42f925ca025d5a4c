//! `lithe`: the command line program of LitheDB.
//!
//! `args` reads the command line, `config` the environment and the file with settings. `commands`,
//! `load` and `demo` do the work, one after the other in `shell`. `input` and `output` turn bytes
//! into records and back, `failure` holds the exit codes.

mod args;
mod commands;
mod config;
mod confirm;
mod database;
mod demo;
mod dump;
mod failure;
mod input;
mod interrupt;
mod keys;
mod load;
mod notation;
mod output;
mod pace;
mod progress;
mod shell;

use std::io::Write;
use std::process::ExitCode;

use args::{Cli, Color, Command, Globals};
use failure::{Failure, Outcome};
use interrupt::Interrupt;
use output::Notices;

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        // Help and versions are answers.
        Err(error) if error.exit_code() == 0 => return end(print_answer(&error)),
        Err(error) => error.exit(),
    };
    choose_color(cli.globals.color);
    end(configure(cli).and_then(run))
}

fn print_answer(answer: &clap::Error) -> Outcome {
    let mut out = anstream::stdout().lock();
    write!(out, "{}", answer.render().ansi())?;
    Ok(out.flush()?)
}

fn end(outcome: Outcome) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if let Some(message) = failure.message() {
        Notices::Shown.fail(&message, failure.advice());
    }
    ExitCode::from(failure.exit_code())
}

/// Adds what the environment and the file with settings say to what the command line does.
fn configure(mut cli: Cli) -> Result<Cli, Failure> {
    if !matches!(&cli.command, Some(Command::Config(args)) if args.is_path()) {
        let settings = config::Settings::read(&cli.globals)?;
        settings.apply(&mut cli.globals)?;
        cli.globals.settings = settings;
        choose_color(cli.globals.color);
    }
    Ok(cli)
}

fn run(cli: Cli) -> Outcome {
    let Cli { globals, command, shell: shell_args } = cli;
    let notices = if globals.quiet { Notices::Silent } else { Notices::Shown };
    let failed = |error| Failure::Other(Box::new(error));
    interrupt::survive_file_size_limit().map_err(failed)?;
    let interrupt = Interrupt::install().map_err(failed)?;
    match command {
        Some(command) => run_command(&globals, notices, &interrupt, command),
        None if globals.db.is_none() && !shell_args.is_for_shell() => {
            let help = args::definition().render_help();
            // Nobody reads it if it cannot be written; `eprint` would panic.
            let _ = write!(anstream::stderr(), "{}", help.ansi());
            Err(Failure::usage("neither a command nor a database is named"))
        }
        None => shell::run(globals, notices, &interrupt, &shell_args),
    }
}

fn run_command(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    command: Command,
) -> Outcome {
    match command {
        Command::Demo(args) => demo::run(globals, notices, &args),
        Command::Create(args) => commands::create::run(globals, notices, &args),
        Command::Rekey(args) => commands::rekey::run(globals, notices, interrupt, &args),
        Command::Load(args) => load::run(globals, notices, interrupt, &args),
        Command::Ingest(args) => commands::ingest::run(globals, notices, &args),
        Command::Get(args) => commands::get::run(globals, &args),
        Command::Put(args) => commands::put::run(globals, &args),
        Command::Merge(args) => commands::merge::run(globals, &args),
        Command::Delete(args) => commands::delete::run(globals, &args),
        Command::Expire(args) => commands::expire::run(globals, &args),
        Command::Tx(args) => commands::tx::run(globals, &args),
        Command::Scan(args) => commands::scan::run(globals, &args),
        Command::Count(args) => commands::count::run(globals, &args),
        Command::Reduce(args) => commands::reduce::run(globals, &args),
        Command::Rank(args) => commands::rank::run_rank(globals, &args),
        Command::Select(args) => commands::rank::run_select(globals, &args),
        Command::Dump(args) => commands::dump::run(globals, notices, &args),
        Command::View(args) => commands::view::run(globals, &args),
        Command::Diff(args) => commands::diff::run(globals, notices, &args),
        Command::History(args) => commands::history::run(globals, &args),
        Command::Restore(args) => commands::restore::run(globals, notices, &args),
        Command::Commits(args) => commands::commits::run(globals, &args),
        Command::Changes(args) => commands::changes::run(globals, &args),
        Command::Consumers(args) => commands::consumers::run(globals, notices, args),
        Command::Indexes(args) => commands::index::run_list(globals, &args),
        Command::Index(args) => commands::index::run(globals, notices, interrupt, &args),
        Command::Keyspaces(args) => commands::keyspaces::run(globals, notices, args),
        Command::Convert(args) => commands::convert::run(globals, notices, interrupt, &args),
        Command::Tables(args) => commands::tables::run(globals, &args),
        Command::Stats(args) => commands::stats::run(globals, &args),
        Command::Compact(args) => commands::compact::run(globals, notices, interrupt, &args),
        Command::Backup(args) => commands::backup::run(globals, notices, interrupt, &args),
        Command::Checkpoint(args) => commands::checkpoint::run(globals, &args),
        Command::Vacuum(args) => commands::vacuum::run(globals, interrupt, &args),
        Command::Upgrade(args) => commands::upgrade::run(globals, notices, interrupt, &args),
        Command::Check(args) => commands::check::run(globals, notices, interrupt, &args),
        Command::Repair(args) => commands::repair::run(globals, notices, &args),
        Command::Serve(args) => commands::serve::run(globals, notices, interrupt, &args),
        Command::Token(args) => commands::token::run(notices, &args),
        Command::Health(args) => commands::health::run(&args),
        Command::Inspect(args) => commands::inspect::run(globals, notices, &args),
        Command::Space(args) => {
            globals.refuse_key("spaces are not encrypted: leave the key options out")?;
            commands::space::run(notices, &args)
        }
        Command::Bench(args) => {
            globals.refuse_key("stores of the benchmark have a key of their own: --encrypted")?;
            Ok(lithe_bench::run(&args)?)
        }
        Command::BenchChild(args) => Ok(lithe_bench::run_child(&args)?),
        Command::Torture(args) => {
            globals.refuse_key("databases that are tortured have keys of their own")?;
            commands::torture::run(notices, interrupt, &args)
        }
        Command::TortureChild(args) => commands::torture::run_child(args),
        Command::Top(args) => commands::top::run(globals, interrupt, &args),
        Command::Config(args) => commands::config::run(globals, &args),
        Command::Man(args) => commands::man::run(notices, &args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Version => commands::version::run(),
    }
}

fn choose_color(color: Color) {
    let choice = match color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}
