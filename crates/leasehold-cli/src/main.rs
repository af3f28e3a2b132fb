//! The `leasehold` command: holds a lock while a command runs.
//!
//! One file per command; `exit.rs` has the table of exit codes. Everything here stands on the public API of the
//! library.

#![warn(clippy::unwrap_used)]

mod cli;
mod duration;
mod evict;
mod exit;
mod generate;
mod group;
mod held;
mod password;
mod place;
mod plain;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod schema;
mod status;
mod sys;
mod tty;
mod watchdog;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use leasehold::engine::Identity;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::place::Place;

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => answer(cli),
        Err(error) => explain(&error),
    };
    ExitCode::from(code)
}

fn answer(cli: Cli) -> u8 {
    if cli.common.verbose {
        tracing_subscriber::fmt()
            .with_writer(|| plain::Stderr)
            .with_ansi(false)
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .init();
    }
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => {
            say(&failure.to_string());
            failure.exit.code()
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let common = cli.common;
    match cli.command {
        Command::Run(args) => block_on(run::run(args, &common)),
        Command::Status(args) => block_on(status::status(&args, &common)),
        Command::Evict(args) => block_on(evict::evict(&args, &common)),
        _ if common.url.is_some() || common.url_file.is_some() => Err(Failure::new(
            Exit::Usage,
            "this command reads no locks: leave out --url and --url-file",
        )),
        _ if common.verbose => Err(Failure::new(
            Exit::Usage,
            "this command waits for nothing that it could tell of: leave out --verbose",
        )),
        #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
        Command::Schema(args) => schema::schema(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man => generate::man(),
    }
}

/// One thread is enough, and it is the main one: the child's parent-death signal follows the thread that forked it.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(work);
    // A call that hangs in the engine must not keep us: its claim ends with its lease.
    runtime.shutdown_background();
    done
}

/// A client that `status` shows as this.
async fn connect(place: &Place, who: Identity) -> leasehold::Result<leasehold::Client> {
    let options = leasehold::ConnectOptions::new().identity(who);
    options.connect(place.url()).await
}

/// Prints a message of clap: help goes to stdout, anything else is bad usage.
fn explain(error: &clap::Error) -> u8 {
    let text = error.render().to_string();
    if error.use_stderr() {
        say_lines(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
        return Exit::Usage.code();
    }
    match print(&text) {
        Ok(()) => 0,
        Err(failure) => failure.exit.code(),
    }
}

/// A line on stderr. A closed stderr is no reason to fail.
fn say(text: &str) {
    say_lines(&plain::line(text));
}

/// Lines of our own on stderr.
fn say_lines(text: &str) {
    let _ = writeln!(std::io::stderr(), "leasehold: {}", plain::plain(text));
}

/// Text on stdout. A reader that has gone away (`… | head`) has seen enough.
fn print(text: &str) -> Result<(), Failure> {
    print_raw(&plain::plain(text))
}

/// Text of our own that may drive the terminal, or was filtered already.
fn print_raw(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::from(error)),
        _ => Ok(()),
    }
}
