//! The command line: parsing, help, man page and completions come from here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::{duration, exit};

/// Distributed locks for commands: one at a time, across processes and machines.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = top_help(), disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Where the locks are; `leasehold --help` lists what there is [default: LEASEHOLD_URL, else file:].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A file with the URL in it [default: LEASEHOLD_URL_FILE]: other users see no password in the list of processes.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
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
    /// Show which processes hold which locks, and which wait.
    #[command(after_help = STATUS_HELP)]
    Status(StatusArgs),
    /// Take a lock away from its holders.
    #[command(after_help = EVICT_HELP)]
    Evict(EvictArgs),
    /// Print the tables that a database needs, to create them by hand.
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

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The name to lock: 1 to 512 bytes, no control characters.
    pub(crate) name: String,
    /// Wait at most this long for the lock, and for a server that is not up yet; for the lock for ever unless set.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: exit 75 if another process holds the lock.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// The exit code for a lock that is busy, if 75 may be the command's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..), default_value = "75")]
    pub(crate) busy_code: u8,
    /// How long the lock outlives a holder that cannot be heard; renewed while the command runs.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_lease, default_value = "10s", allow_hyphen_values = true)]
    pub(crate) lease: Duration,
    /// Share the lock with others that also share it.
    #[arg(long, conflicts_with_all = ["permits", "of"])]
    pub(crate) shared: bool,
    /// Take this many permits of a semaphore.
    #[arg(long, value_name = "K", requires = "of")]
    pub(crate) permits: Option<u32>,
    /// How many permits the semaphore has.
    #[arg(long, value_name = "N", requires = "permits")]
    pub(crate) of: Option<u32>,
    /// If a surrounding run holds the lock, run under its grant instead of refusing; a grant for less (shared, fewer
    /// permits) is refused.
    #[arg(long)]
    pub(crate) reenter: bool,
    /// Let `status` show the command's arguments too, to every user of the same locks; secrets are masked.
    #[arg(long)]
    pub(crate) show_args: bool,
    /// Give the command LEASEHOLD_URL with its password, for nested runs.
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Only this name: exits 0 if it is in use, 1 if it is free. Every name in use otherwise.
    pub(crate) name: Option<String>,
    /// Show it again whenever something changed, until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
    /// For programs: an array of lines with their holders and waiters.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `evict`.
#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// The lock that is taken away.
    pub(crate) name: String,
    /// The reason. The holders are told.
    #[arg(long, value_name = "TEXT", required_unless_present = "ask", value_parser = reason)]
    pub(crate) why: Option<String>,
    /// Only ask them to give it up; they hold it until they do. ZooKeeper, where Curator's holders hear it too, etcd and
    /// Consul.
    #[arg(long, conflicts_with = "why")]
    pub(crate) ask: bool,
    /// Only the holder with this fence.
    #[arg(long, value_name = "N", value_parser = fence)]
    pub(crate) fence: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- ./backup.sh             one backup at a time
  leasehold run deploy --no-wait -- make deploy   or give up at once (exit code 75)
  leasehold run gpu --permits 1 --of 4 -- train   four at a time
  leasehold status                                which processes hold what, which wait
  leasehold evict backup --why 'it hangs'         take it away";

/// Every engine, also those that a build may lack.
pub(crate) const URLS: &str = "\
Where the locks are (--url, or LEASEHOLD_URL):
  file:                        this user's programs on this machine: /run/leasehold for root, else below the home
  file:DIR                     the programs of this user that name this directory
  redis://[:PASSWORD@]HOST     one Redis or Valkey server; rediss:// with TLS, redis+sentinel://, redis+cluster://
  redlock://A,B,C              a majority of independent Redis servers
  postgres://USER@HOST/DB      tables in PostgreSQL
  mysql://USER@HOST/DB         tables in MySQL or MariaDB
  sqlite:FILE                  a file that the programs of this machine share
  zookeeper://A,B,C/PATH       ZooKeeper, in Curator's layout
  etcd://A,B,C                 etcd, in the layout of etcdctl lock
  consul://HOST:8500/PREFIX    Consul; CONSUL_HTTP_ADDR and others where the URL is silent
A build may have fewer; one that lacks an engine says so. Every user of the machine sees the arguments of a command: give
a URL with a password by --url-file or LEASEHOLD_URL, or leave the password out. It is then looked for where the
server's own program looks: REDISCLI_AUTH; PGPASSWORD, PGPASSFILE, ~/.pgpass; MYSQL_PWD, ~/.my.cnf;
ETCDCTL_USER, ETCDCTL_PASSWORD; CONSUL_HTTP_TOKEN, CONSUL_HTTP_TOKEN_FILE.";

fn top_help() -> String {
    format!("{URLS}\n\n{EXAMPLES}")
}

/// A reason that says something.
fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why: the holders are told, and it stays in the trace".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn fence(text: &str) -> Result<u64, String> {
    let wrong = |_| "a fence is a whole number, as `leasehold status` shows it".to_owned();
    text.parse().map_err(wrong)
}

fn run_help() -> String {
    format!("{RUN_HELP}\n\n{}", exit::manual())
}

const RUN_HELP: &str = "\
The command finds in its environment
  LEASEHOLD_NAME      the name
  LEASEHOLD_FENCE     the fence: for one name, every later holder has a larger one. Send it with every write that must
                      not come late
  LEASEHOLD_URL       where the locks are, without a password unless --pass-url is given
  LEASEHOLD_URL_FILE  the file with the URL, if that was given
  LEASEHOLD_HELD      the locks that this run and those around it hold, for nested runs

It gets stdin, stdout and stderr as they are, a process group of its own, and every signal sent to this process.
The lock is freed as soon as it ends; what it leaves in the background runs on without the lock.

If the lock is lost the whole group gets SIGTERM, and SIGKILL before the lease ends. If renewals fail that happens
before the lease can lapse. If this process is killed, or stopped (^Z) for longer than the lease, the group is killed.
A command that becomes another user (sudo) cannot be stopped so: then it is named, and has to be stopped as that user.

Examples:
  leasehold run backup -- ./backup.sh
  leasehold run deploy --wait 30s --lease 5s -- make deploy
  leasehold run config --shared -- ./read-config
  leasehold run gpu --permits 2 --of 4 -- ./train
  leasehold run db -- sh -c 'psql -v fence=$LEASEHOLD_FENCE -f update.sql'";

const STATUS_HELP: &str = "\
SINCE is since when a holder holds, or a waiter waits. ZooKeeper, etcd and Consul know only when a holder asked: `<24s ago`
is then the longest that it can have held. LEASE is how long the lock outlives its holder's last word. LAPSES is when it
ends if the holder is not heard again: while the process lives that moment moves on with every renewal. --watch goes on
when the engine cannot be reached for a while.

Examples:
  leasehold status
  leasehold status backup --watch
  leasehold status --json | jq -r '.[].holders[].pid'";

const EVICT_HELP: &str = "\
The holders are told at once, and later fences are larger. A `leasehold run` that loses its lock stops its command; but
the next in line gets the lock at once, so for a moment, at most a third of the lease, both commands run: what they
write to must check the fence, or the second must not mind. Exits 0 also if no process held the lock. A program that was
only asked (--ask) decides by itself; `leasehold run` goes on.

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
