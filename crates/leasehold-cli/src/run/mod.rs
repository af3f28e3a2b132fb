//! `leasehold run`: holds a lock while a command runs.

mod child;
mod claim;
mod hold;
mod signals;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use leasehold::engine::{Identity, Query};
use leasehold::{Client, Fence, Name};

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

pub(crate) async fn run(args: RunArgs, common: &Common) -> Result<u8, Failure> {
    // A bad name is refused before anything is touched.
    let name = Name::new(&args.name)?;
    let mut signals = Signals::listen()?;
    let place = Place::given(common)?;
    let connect = crate::connect(&place, identity(&args));
    let client = tokio::select! {
        client = connect => client?,
        signal = signals.stop() => return Ok(exit::of_signal(signal.as_raw())),
    };
    let outcome = attempt(&args, common, &place, &client, &name, &mut signals).await;
    // What was dropped on the way is given back before we go: nobody waits for the lease of a withdrawn claim.
    let _ = tokio::time::timeout(GOODBYE, client.shutdown(GOODBYE)).await;
    match outcome? {
        Outcome::Exit(code) => Ok(code),
        Outcome::Reenter(fence) => {
            let mut command = program(&args, &place, &client).command(&name, fence);
            Err(child::not_run(&args.command[0], &command.exec()))
        }
    }
}

async fn attempt(
    args: &RunArgs,
    common: &Common,
    place: &Place,
    client: &Client,
    name: &Name,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    let held = Held::from_env();
    let location = client.location();
    if let Some(fence) = held.fence(&location, name.as_str())
        && still_held(client, name, fence).await?
    {
        return nested(args, name, fence);
    }
    let say = |text: String| {
        if common.verbose {
            crate::say(&text);
        }
    };
    say(format!("asking for {name} on {location}"));
    let guard = tokio::select! {
        guard = claim::claim(args, client) => guard?,
        signal = signals.stop() => return Ok(Outcome::Exit(exit::of_signal(signal.as_raw()))),
    };
    let Some(guard) = guard else {
        crate::say(&busy(client, name).await);
        return Ok(Outcome::Exit(args.busy_code));
    };
    let source = match client.guarantees().fences {
        "" => String::new(),
        source => format!(": {source}"),
    };
    say(format!(
        "holding {name} with fence {}{source}",
        guard.fence()
    ));
    let mut program = program(args, place, client);
    let held = held.and(&location, name.as_str(), guard.fence());
    program.env.push((HELD, held.to_env().into()));
    let code = hold::hold(guard, &program, args.lease, signals).await?;
    Ok(Outcome::Exit(code))
}

/// A record of a lock that has ended since (its runner is gone, this process is not) is no reason to refuse.
async fn still_held(client: &Client, name: &Name, fence: Fence) -> Result<bool, Failure> {
    let lines = client.inspect(&Query::name(name.clone())).await?;
    let mut holders = lines.iter().flat_map(|line| &line.holders);
    Ok(holders.any(|holder| holder.fence == Some(fence)))
}

fn nested(args: &RunArgs, name: &Name, fence: Fence) -> Result<Outcome, Failure> {
    if args.reenter {
        return Ok(Outcome::Reenter(fence));
    }
    let what = format!(
        "{name} is held by a surrounding run with fence {fence}: this one would wait for itself \
         (--reenter runs the command under that grant)"
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

fn program(args: &RunArgs, place: &Place, client: &Client) -> Program {
    Program {
        words: args.command.clone(),
        env: place.env(client, args.pass_url),
    }
}

/// What `status` shows: the command's name, and its arguments only if that is wanted. Others can read it.
fn identity(args: &RunArgs) -> Identity {
    let this = Identity::of_this_process();
    match args.show_args {
        true => this.with_arguments(&args.command),
        false => {
            let program = Path::new(&args.command[0]);
            let name = program.file_name().unwrap_or(program.as_os_str());
            this.called(name.to_string_lossy())
        }
    }
}
