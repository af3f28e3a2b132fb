//! The command line: parsing, help, man page and completions come from here.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::{duration, exit};

/// Distributed locks for commands: one at a time, across processes and machines.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Where the locks are [default: LEASEHOLD_URL, else files in this user's own directory].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Say on stderr what is waited for and granted, and what goes wrong on the way.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs.
    #[command(after_help = run_help())]
    Run(RunArgs),
    /// Show who holds what, and who waits.
    #[command(after_help = STATUS_HELP)]
    Status(StatusArgs),
    /// Take a lock away from whoever holds it.
    #[command(after_help = EVICT_HELP)]
    Evict(EvictArgs),
    /// Print the tables that a database needs, for those who create them themselves.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    Schema(crate::schema::SchemaArgs),
    /// Print a shell's completion script.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    Man,
}

/// What `run` understands.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to lock: 1 to 512 bytes, no control characters.
    pub(crate) name: String,
    /// Wait at most this long for the lock; for ever unless set.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: exit 75 if somebody else holds the lock.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long the lock outlives a holder that cannot be heard; renewed while the command runs.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_lease, default_value = "10s")]
    pub(crate) lease: Duration,
    /// Share the lock with others who also share it.
    #[arg(long, conflicts_with_all = ["permits", "of"])]
    pub(crate) shared: bool,
    /// Take this many permits of a semaphore.
    #[arg(long, value_name = "K", requires = "of")]
    pub(crate) permits: Option<u32>,
    /// How many permits the semaphore has.
    #[arg(long, value_name = "N", requires = "permits")]
    pub(crate) of: Option<u32>,
    /// If a surrounding run holds the lock, run under its grant instead of refusing.
    #[arg(long)]
    pub(crate) reenter: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What `status` understands.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Only this name; every name in use otherwise.
    pub(crate) name: Option<String>,
    /// Show it again whenever something changed, until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
    /// For programs: an array of lines with their holders and waiters.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `evict` understands.
#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// Whose holders lose it.
    pub(crate) name: String,
    /// The reason. The holders are told.
    #[arg(long, value_name = "TEXT", required_unless_present = "ask")]
    pub(crate) why: Option<String>,
    /// Only ask them to give it up; they hold it until they do. ZooKeeper alone, where Curator's holders hear it too.
    #[arg(long, conflicts_with = "why")]
    pub(crate) ask: bool,
    /// Only the holder with this fence.
    #[arg(long, value_name = "N")]
    pub(crate) fence: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- ./backup.sh             one backup at a time
  leasehold run deploy --no-wait -- make deploy   or give up at once (exit code 75)
  leasehold run gpu --permits 1 --of 4 -- train   four at a time
  leasehold status                                who holds what, who waits
  leasehold evict backup --why 'it hangs'         take it away";

fn run_help() -> String {
    format!("{RUN_HELP}\n\n{}", exit::manual())
}

const RUN_HELP: &str = "\
The command finds LEASEHOLD_NAME, LEASEHOLD_FENCE and LEASEHOLD_URL in its environment. Send the fence with every
write that must not come late: for one name, every later holder has a larger one.

It gets stdin, stdout and stderr as they are, a process group of its own, and every signal sent to this process.
The lock is freed as soon as it ends; what it leaves in the background runs on without the lock.

If the lock is lost the whole group gets SIGTERM, and SIGKILL before the lease ends. If renewals fail that happens
before the lease can lapse. If this process is killed, or stopped (^Z) for longer than the lease, the group is killed.

Examples:
  leasehold run backup -- ./backup.sh
  leasehold run deploy --wait 30s --lease 5s -- make deploy
  leasehold run config --shared -- ./read-config
  leasehold run gpu --permits 2 --of 4 -- ./train
  leasehold run db -- sh -c 'psql -v fence=$LEASEHOLD_FENCE -f update.sql'";

const STATUS_HELP: &str = "\
Examples:
  leasehold status
  leasehold status backup --watch
  leasehold status --json | jq -r '.[].holders[].pid'";

const EVICT_HELP: &str = "\
The holders are told at once, and later fences are larger. A `leasehold run` that loses its lock stops its command.
Exits 0 also if nobody held it. A program that was only asked (--ask) decides by itself; `leasehold run` goes on.

Examples:
  leasehold evict backup --why 'hangs since noon'
  leasehold evict backup --fence 1700000000000000 --why 'only that one'
  leasehold evict backup --ask";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
