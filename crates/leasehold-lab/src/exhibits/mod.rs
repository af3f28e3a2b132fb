//! The lab of broken locks: classic mistakes as small programs against a real server, the schedule that breaks each, the promise
//! that the checker finds broken; and the same schedule on Leasehold.

mod broken;
mod ours;
mod redis;
mod stage;

use std::path::Path;

use self::stage::Stage;
use crate::Outcome;
use crate::check::{Bounds, Demands, Promise, Verdict, judge};
use crate::history::assemble;
use crate::timeline;

pub use self::ours::hold;

/// One mistake.
#[derive(Debug)]
pub struct Exhibit {
    /// Its word.
    pub name: &'static str,
    /// What people write.
    pub title: &'static str,
    /// Why it breaks.
    pub why: &'static str,
    /// What the checker must find broken.
    pub breaks: Promise,
    broken: fn(&Stage) -> Outcome<()>,
    ours: Ours,
}

/// Which schedule of ours stands beside it.
#[derive(Debug, Clone, Copy)]
enum Ours {
    Two,
    Death,
    Overrun,
    Fences,
}

/// All of them.
pub const EXHIBITS: [Exhibit; 14] = [
    Exhibit {
        name: "in-process",
        title: "a language's own mutex in a service of two instances",
        why: "The mutex excludes the threads of one process. Each instance has its own, so both sell the last piece.",
        breaks: Promise::Exclusion,
        broken: broken::in_process,
        ours: Ours::Two,
    },
    Exhibit {
        name: "setnx",
        title: "SETNX without an expiry",
        why: "The key is deleted by its holder alone. The holder dies, and everybody waits for ever.",
        breaks: Promise::Progress,
        broken: broken::setnx,
        ours: Ours::Death,
    },
    Exhibit {
        name: "setnx-expire",
        title: "SETNX, then EXPIRE",
        why: "Two commands: who dies between them leaves a key without an expiry.",
        breaks: Promise::Progress,
        broken: broken::setnx_expire,
        ours: Ours::Death,
    },
    Exhibit {
        name: "plain-del",
        title: "SET NX PX, then DEL",
        why: "A holder whose lease is over deletes the key of the next one, and a third gets in beside it.",
        breaks: Promise::Exclusion,
        broken: broken::plain_del,
        ours: Ours::Overrun,
    },
    Exhibit {
        name: "get-del",
        title: "GET, compare, DEL",
        why: "The key is ours when it is read and somebody else's when it is deleted: the lease ended between the two commands.",
        breaks: Promise::Exclusion,
        broken: broken::get_del,
        ours: Ours::Overrun,
    },
    Exhibit {
        name: "getset",
        title: "the end of the lease in the value, taken over with GETSET",
        why: "Each client judges the end by its own clock. One that is ahead takes over a lock that is held.",
        breaks: Promise::Exclusion,
        broken: broken::getset,
        ours: Ours::Two,
    },
    Exhibit {
        name: "fixed-lease",
        title: "a lease of fixed length that nobody renews",
        why: "The work takes longer than somebody once guessed. The key is gone, the work goes on, and the next one starts.",
        breaks: Promise::Exclusion,
        broken: broken::fixed_lease,
        ours: Ours::Two,
    },
    Exhibit {
        name: "timed-out",
        title: "an acquire that returns its id although its time ran out",
        why: "The loop ends by success or by time, and the code after it does not ask which.",
        breaks: Promise::Exclusion,
        broken: broken::timed_out,
        ours: Ours::Two,
    },
    Exhibit {
        name: "misread-release",
        title: "a release that takes any answer for a yes",
        why: "The script answers 0: the lock was somebody else's. The caller is told that it had held it all the time.",
        breaks: Promise::Exclusion,
        broken: broken::misread,
        ours: Ours::Overrun,
    },
    Exhibit {
        name: "watchdog",
        title: "a watchdog that outlives the release",
        why: "It renews by writing the key, so it makes the key again after the release. Nobody holds the lock, and nobody gets it.",
        breaks: Promise::Progress,
        broken: broken::watchdog,
        ours: Ours::Two,
    },
    Exhibit {
        name: "finally-del",
        title: "a finally block that unlocks what it never locked",
        why: "The attempt failed, the block runs all the same, and anybody may delete the key.",
        breaks: Promise::Exclusion,
        broken: broken::finally_del,
        ours: Ours::Two,
    },
    Exhibit {
        name: "amnesia",
        title: "a server that keeps its locks in memory only",
        why: "It is started again while a lock is held. The key is gone, and its holder does not know.",
        breaks: Promise::Exclusion,
        broken: broken::amnesia,
        ours: Ours::Two,
    },
    Exhibit {
        name: "counter-reset",
        title: "fences from a counter that a restart forgets",
        why: "The counter begins again at 1, so the resource takes an old holder's write for a new one's.",
        breaks: Promise::FenceOrder,
        broken: broken::counter,
        ours: Ours::Fences,
    },
    Exhibit {
        name: "no-fence",
        title: "a resource that checks no fence",
        why: "The holder stood still past its lease between the look at its lock and the write. No lock can see that; a resource that checks fences can.",
        breaks: Promise::EffectOrder,
        broken: broken::no_fence,
        ours: Ours::Overrun,
    },
];

/// Prints the exhibits.
pub fn list() {
    for exhibit in &EXHIBITS {
        println!(
            "{:<16} {} (breaks {})",
            exhibit.name, exhibit.title, exhibit.breaks
        );
    }
}

/// Runs exhibits by name; whether each broke as it must and ours did not.
///
/// # Errors
/// If there is no such exhibit, or a server is missing.
pub async fn run(names: &[String], into: &Path) -> Outcome<bool> {
    std::fs::create_dir_all(into)?;
    let all = names.iter().any(|name| name == "all");
    if let Some(name) = names
        .iter()
        .find(|name| !all && EXHIBITS.iter().all(|exhibit| exhibit.name != name.as_str()))
    {
        return Err(format!("no exhibit {name}; `leasehold-lab list` shows them").into());
    }
    let mut good = true;
    for exhibit in EXHIBITS
        .iter()
        .filter(|exhibit| all || names.iter().any(|name| name == exhibit.name))
    {
        good &= exhibit.show(into).await?;
    }
    Ok(good)
}

fn verdict(stage: &Stage, picture: &Path, title: &str) -> Outcome<Verdict> {
    let history = assemble(stage.log.take())?;
    let bounds = Bounds {
        stall: 600_000,
        told: 600_000,
        ..Bounds::default()
    };
    let verdict = judge(&history, &bounds, &Demands::default());
    std::fs::write(picture, timeline::svg(&history, &verdict, title))?;
    Ok(verdict)
}

impl Exhibit {
    async fn show(&self, into: &Path) -> Outcome<bool> {
        let stage = Stage::new();
        (self.broken)(&stage)?;
        let theirs = verdict(&stage, &into.join(format!("{}.svg", self.name)), self.title)?;
        let (stage, dir) = (Stage::new(), tempfile::tempdir()?);
        match self.ours {
            Ours::Two => ours::two(&stage, dir.path()).await?,
            Ours::Death => ours::death(&stage, dir.path()).await?,
            Ours::Overrun => ours::overrun(&stage, dir.path()).await?,
            Ours::Fences => ours::fences(&stage, dir.path()).await?,
        }
        let ours = verdict(
            &stage,
            &into.join(format!("{}-leasehold.svg", self.name)),
            "the same on Leasehold",
        )?;
        println!("{}: {}\n  {}", self.name, self.title, self.why);
        for broken in theirs.broken.iter().take(2) {
            println!("  broken: {}: {}", broken.promise, broken.text);
        }
        println!(
            "  Leasehold: {}\n",
            if ours.is_good() {
                "kept".to_owned()
            } else {
                ours.to_string()
            }
        );
        Ok(theirs.count(self.breaks) > 0 && ours.is_good())
    }
}
