//! `leasehold run`: holds a lock while a command runs.

mod child;
mod claim;
mod hold;
mod signals;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use leasehold::engine::{Identity, Mode, Query};
use leasehold::{Client, ConnectOptions, Fence, Name};
use tokio::time::Instant;

use self::child::Program;
use self::signals::Signals;
use crate::cli::{Common, RunArgs};
use crate::exit::{self, Exit, Failure};
use crate::held::{HELD, Held};
use crate::place::Place;
use crate::plain;

/// How long to go on telling the engine that we are gone, once we are.
const GOODBYE: Duration = Duration::from_secs(2);

/// How an attempt ended.
enum Outcome {
    /// With this exit code.
    Exit(u8),
    /// An ancestor holds the lock with this fence: the command runs in our place, under its grant.
    Reenter(Fence),
}

/// One call of `run`.
struct Run {
    args: RunArgs,
    name: Name,
    place: Place,
    verbose: bool,
    /// When `--wait` is over; never if it was not given.
    until: Option<Instant>,
}

pub(crate) async fn run(args: RunArgs, common: &Common) -> Result<u8, Failure> {
    // A bad name is refused before anything is touched.
    let run = Run {
        name: Name::new(&args.name)?,
        place: Place::given(common)?,
        verbose: common.verbose,
        until: args.wait.and_then(|wait| Instant::now().checked_add(wait)),
        args,
    };
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = run.connect() => client?,
        signal = signals.stop() => return Ok(exit::of_signal(signal.as_raw())),
    };
    let outcome = run.attempt(&client, &mut signals).await;
    // Dropped claims are given back before we go: no waiter waits for the lease of a withdrawn claim.
    let _ = tokio::time::timeout(GOODBYE, client.shutdown(GOODBYE)).await;
    match outcome? {
        Outcome::Exit(code) => Ok(code),
        Outcome::Reenter(fence) => {
            let mut command = run.program(&client).command(&run.name, fence);
            Err(child::not_run(&run.args.command[0], &command.exec()))
        }
    }
}

impl Run {
    /// Connects. A server that is not up yet is asked again for as long as `--wait` lets.
    async fn connect(&self) -> leasehold::Result<Client> {
        let mut options = ConnectOptions::new().identity(self.identity());
        if let Some(wait) = self.args.wait {
            options = options.patience(wait);
        }
        options.connect(self.place.url()).await
    }

    async fn attempt(&self, client: &Client, signals: &mut Signals) -> Result<Outcome, Failure> {
        let (name, held, location) = (&self.name, Held::from_env(), client.location());
        if let Some(fence) = held.fence(&location, name.as_str()) {
            let looked = tokio::select! {
                looked = surrounding(client, name, fence) => looked?,
                signal = signals.stop() => return Ok(Outcome::Exit(exit::of_signal(signal.as_raw()))),
            };
            if let Some(mode) = looked {
                return nested(&self.args, name, fence, mode);
            }
        }
        self.tell(&format!("asking for {name} on {location}"));
        let guard = tokio::select! {
            guard = claim::claim(&self.args, self.until, client) => guard?,
            signal = signals.stop() => return Ok(Outcome::Exit(exit::of_signal(signal.as_raw()))),
        };
        let Some(guard) = guard else {
            crate::say(&busy(client, name).await);
            return Ok(Outcome::Exit(self.args.busy_code));
        };
        let fence = guard.fence();
        self.tell(&match client.guarantees().fences {
            "" => format!("holding {name} with fence {fence}"),
            source => format!("holding {name} with fence {fence}: {source}"),
        });
        let mut program = self.program(client);
        let held = held.and(&location, name.as_str(), fence);
        program.env.push((HELD, held.to_env().into()));
        let code = hold::hold(guard, &program, self.args.lease, signals).await?;
        Ok(Outcome::Exit(code))
    }

    /// With `--verbose`.
    fn tell(&self, text: &str) {
        if self.verbose {
            crate::say(text);
        }
    }

    fn program(&self, client: &Client) -> Program {
        Program {
            words: self.args.command.clone(),
            env: self.place.env(client, self.args.pass_url),
        }
    }

    /// The text for `status`: the command's name, and its arguments only if that is wanted. Others can read it.
    fn identity(&self) -> Identity {
        let (this, command) = (Identity::of_this_process(), &self.args.command);
        if self.args.show_args {
            return this.with_arguments(command);
        }
        let program = Path::new(&command[0]);
        let name = program.file_name().unwrap_or(program.as_os_str());
        this.called(name.to_string_lossy())
    }
}

/// How a surrounding run holds the lock. A record of one that has ended since (its runner is gone, this process is not)
/// is no reason to refuse.
async fn surrounding(client: &Client, name: &Name, fence: Fence) -> Result<Option<Mode>, Failure> {
    let lines = client.inspect(&Query::name(name.clone())).await?;
    let mut holders = lines.iter().flat_map(|line| &line.holders);
    let holder = holders.find(|holder| holder.fence == Some(fence));
    Ok(holder.map(|holder| holder.mode))
}

fn nested(args: &RunArgs, name: &Name, fence: Fence, held: Mode) -> Result<Outcome, Failure> {
    let covered = claim::covers(held, args);
    let hint = match (args.reenter, covered) {
        (true, true) => return Ok(Outcome::Reenter(fence)),
        (false, true) => " (--reenter runs the command under that grant)",
        (_, false) => {
            ", and that grant is for less than is asked for: ask for this much in the surrounding run"
        }
    };
    let what = format!(
        "{name} is held by a surrounding run ({held}) with fence {fence}: this one would wait for itself{hint}"
    );
    Err(Failure::new(Exit::Usage, what))
}

/// Says which process has it, as far as a look that may already be late can tell.
async fn busy(client: &Client, name: &Name) -> String {
    let looked = tokio::time::timeout(GOODBYE, client.inspect(&Query::name(name.clone()))).await;
    let lines = looked.ok().and_then(Result::ok).unwrap_or_default();
    let holder = lines.iter().flat_map(|line| &line.holders).next();
    match holder.and_then(|holder| Some((holder.who.as_ref()?, holder.fence?))) {
        Some((who, fence)) => {
            let command = plain::cut(&who.command, 40);
            format!("{name} is busy: {who} ({command}) holds it with fence {fence}")
        }
        None => format!("{name} is busy"),
    }
}
