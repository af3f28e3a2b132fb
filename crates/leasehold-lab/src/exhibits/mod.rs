//! The lab of broken locks: classic mistakes as small programs against a real server, the schedule that breaks each, the promise
//! that the checker finds broken; and the same schedule on Leasehold, on the same server.

mod client;
mod list;
mod schedules;
mod servers;
mod stage;

use std::path::Path;

use leasehold::engine::Micros;

use self::servers::{On, Servers};
use self::stage::{LEASE, Scene};
use crate::Outcome;
use crate::check::{Bounds, Demands, Promise, Verdict, judge};
use crate::history::assemble;
use crate::timeline;

pub use self::client::act;
pub use self::list::EXHIBITS;

/// The word of our own lock.
const OURS: &str = "leasehold";

/// One mistake.
#[derive(Debug)]
pub struct Exhibit {
    /// Its word.
    pub name: &'static str,
    /// The lock, as programs have it.
    pub title: &'static str,
    /// Why it breaks.
    pub why: &'static str,
    /// The promise that the checker must find broken.
    pub breaks: Promise,
    /// Where the lock is kept.
    on: On,
    /// The steps of the clients.
    schedule: fn(&mut Scene<'_>) -> Outcome<()>,
    /// Leasehold's outcome of this schedule, beyond the usual.
    ours: Ours,
}

/// How Leasehold plays an exhibit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ours {
    /// As always.
    Usual,
    /// With options of its URL.
    With(&'static str),
    /// The server forgets: two may hold until the next heartbeat, and the resource refuses the late one.
    Fenced,
}

/// Prints the exhibits.
pub fn list() {
    for exhibit in &EXHIBITS {
        println!(
            "{:<18} {} (breaks {})",
            exhibit.name, exhibit.title, exhibit.breaks
        );
    }
}

/// Runs exhibits by name; whether each broke as it must and ours did not.
///
/// # Errors
/// If there is no such exhibit, or a server does not do what it must.
///
/// # Panics
/// If a server is not installed, or a client ends before its time.
pub fn run(names: &[String], into: &Path) -> Outcome<bool> {
    std::fs::create_dir_all(into)?;
    let all = names.iter().any(|name| name == "all");
    if let Some(name) = names
        .iter()
        .find(|name| !all && EXHIBITS.iter().all(|exhibit| exhibit.name != name.as_str()))
    {
        return Err(format!("no exhibit {name}; `leasehold-lab list` shows them").into());
    }
    let (mut good, mut servers) = (true, Servers::default());
    for exhibit in EXHIBITS
        .iter()
        .filter(|exhibit| all || names.iter().any(|name| name == exhibit.name))
    {
        let shown = exhibit.show(&mut servers, into);
        good &= shown.map_err(|error| format!("{}: {error}", exhibit.name))?;
    }
    Ok(good)
}

struct Played {
    verdict: Verdict,
    remark: Option<String>,
}

impl Exhibit {
    fn show(&self, servers: &mut Servers, into: &Path) -> Outcome<bool> {
        println!("{}: {}\n  {}", self.name, self.title, self.why);
        let picture = into.join(format!("{}.svg", self.name));
        let theirs = self.play(self.name, "", servers, &picture, self.title)?;
        for broken in theirs.verdict.broken.iter().take(2) {
            println!("  broken: {}: {}", broken.promise, broken.text);
        }
        remark(&theirs);
        let picture = into.join(format!("{}-leasehold.svg", self.name));
        let options = match self.ours {
            Ours::With(options) => options,
            _ => "",
        };
        let title = "the same on Leasehold";
        let ours = self.play(OURS, options, servers, &picture, title)?;
        let kept = ours.verdict.is_good() && ours.verdict.stats.holds > 0;
        match kept {
            true if self.ours == Ours::Fenced => {
                println!("  Leasehold: the loss was told, the late effect refused");
            }
            true => println!("  Leasehold: kept"),
            false => println!("  Leasehold: {}", ours.verdict),
        }
        remark(&ours);
        let refused = self.ours != Ours::Fenced || ours.verdict.stats.refused > 0;
        let shown = theirs.verdict.count(self.breaks) > 0 && kept && refused;
        println!("{}", if shown { "" } else { "  NOT AS IT SAYS\n" });
        Ok(shown)
    }

    fn play(
        &self,
        lock: &'static str,
        options: &str,
        servers: &mut Servers,
        picture: &Path,
        title: &str,
    ) -> Outcome<Played> {
        let url = servers.url(self.on) + options;
        let mut scene = Scene::new(lock, url, servers);
        (self.schedule)(&mut scene)?;
        let lease = scene.lease.as_micros() as Micros;
        let fenced = lock == OURS && self.ours == Ours::Fenced;
        let bounds = Bounds {
            overlap: if fenced { lease } else { 0 },
            stall: (LEASE * 3 / 2).as_micros() as Micros,
            told: lease,
            ..Bounds::default()
        };
        let history = assemble(scene.log.take())?;
        let verdict = judge(&history, &bounds, &Demands::default());
        std::fs::write(picture, timeline::svg(&history, &verdict, title))?;
        let remark = scene.remark.take();
        Ok(Played { verdict, remark })
    }
}

fn remark(played: &Played) {
    if let Some(remark) = &played.remark {
        println!("  {remark}");
    }
}
