//! `leasehold run`: holds a lock while a command runs.

mod child;
mod claim;
mod hold;
mod signals;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use leasehold::engine::{Query, Url};
use leasehold::{Client, Fence, Name};

use self::child::Program;
use self::signals::Signals;
use crate::cli::{Common, RunArgs};
use crate::exit::{self, Exit, Failure};
use crate::held::{HELD, Held};

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
    let connect = crate::connect(common, Some(spelled(&args.command)));
    let client = tokio::select! {
        client = connect => client?,
        signal = signals.stop() => return Ok(exit::of_signal(signal.as_raw())),
    };
    let outcome = attempt(&args, common, &client, &name, &mut signals).await;
    // What was dropped on the way is given back before we go: nobody waits for the lease of a withdrawn claim.
    let _ = tokio::time::timeout(GOODBYE, client.shutdown(GOODBYE)).await;
    match outcome? {
        Outcome::Exit(code) => Ok(code),
        Outcome::Reenter(fence) => {
            let mut command = program(&args, common, &client).command(&name, fence);
            Err(child::not_run(&args.command[0], &command.exec()))
        }
    }
}

async fn attempt(
    args: &RunArgs,
    common: &Common,
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
        return Err(Failure::new(Exit::Busy, format!("{name} is busy")));
    };
    let source = match client.guarantees().fences {
        "" => String::new(),
        source => format!(": {source}"),
    };
    say(format!(
        "holding {name} with fence {}{source}",
        guard.fence()
    ));
    let mut program = program(args, common, client);
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

fn program(args: &RunArgs, common: &Common, client: &Client) -> Program {
    let url = url_for_child(common, client);
    Program {
        words: args.command.clone(),
        env: url
            .map(|url| ("LEASEHOLD_URL", url.into()))
            .into_iter()
            .collect(),
    }
}

/// Where a nested run finds the same locks; none if the child knows already. A directory that is named from here
/// would be another one wherever the child goes.
fn url_for_child(common: &Common, client: &Client) -> Option<String> {
    let given = common
        .url
        .clone()
        .or_else(|| std::env::var("LEASEHOLD_URL").ok())?;
    let url = Url::parse(&given).ok()?;
    let relative = url.hosts().is_empty() && !url.path().is_empty() && !url.path().starts_with('/');
    Some(if relative { client.location() } else { given })
}

/// The command as `status` shows it.
fn spelled(command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}
