//! Calls that arrive around the end of a dead holder's lease, a fraction of a millisecond apart: the lock passes on, no
//! call fails, fences grow, and nothing without an end is left.
//!
//! A real process holds many names, each for a lease of its own length, and is stopped or killed. For each name one call
//! is made at its own distance from the end of that lease; then each claim that waits, and one more, must get the lock.

mod name;
mod scene;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use leasehold::engine::{Clock, Engine, Identity, Inbox, LineView, Query, Session};
use leasehold_testkit::poll::{eventually, until};
use rustix::process::Signal;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use self::name::Name;
use self::scene::Scene;
use crate::Bed;

/// How the holder's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It stands still; its connections stay.
    Stopped,
    /// It is killed; its connections are closed.
    Killed,
}

/// How many calls of each kind arrive around the end, those of one [`Ending`] between those of the other; and as many,
/// four times as close, after it.
const OFFSETS: i64 = 21;
/// The same where a lease ends when the server gets to it: a closer look shows no more, and takes many times as long.
const ROUGH_OFFSETS: i64 = 9;

/// The clients around the edge, besides the dead process.
struct Cast {
    newcomer: Client,
    /// Of the claims that wait: their calls are made when the test wants them.
    session: Arc<dyn Session>,
}

/// One engine and ending at a time: calls are to be on time by a fraction of a millisecond.
static ONE: Mutex<()> = Mutex::const_new(());

/// Every scene, every arrival, with a process that ends so.
///
/// # Panics
/// With the list of what went wrong.
pub async fn passes_on(bed: &Bed, engine: impl Engine, ending: Ending) {
    let _one = ONE.lock().await;
    // One engine for all: some know only of claims that wait in their own process.
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let who = Identity::of_this_process();
    let opened = engine.open(&who, Inbox::new(|_| {}));
    let cast = Arc::new(Cast {
        newcomer: bed.open(&engine).await,
        session: opened.await.expect("a session"),
    });
    let shared = cast.newcomer.guarantees().shared;
    let (mut tried, mut wrong) = (0, Vec::new());
    for scene in Scene::ALL
        .into_iter()
        .filter(|scene| shared || scene.is_mutex())
    {
        let played = play(bed, &cast, scene, ending).await;
        tried += played.len();
        wrong.extend(played.into_iter().filter_map(Result::err));
    }
    wrong.extend((bed.endless)());
    let most: Vec<_> = wrong
        .iter()
        .take(20)
        .map(|text| format!("\n  {text}"))
        .collect();
    println!("{ending:?}: {} of {tried} went wrong", wrong.len());
    assert!(
        tried > 100,
        "only {tried} holders kept their locks until they died"
    );
    assert!(
        wrong.is_empty(),
        "{ending:?}: {} of {tried}:{}",
        wrong.len(),
        most.concat()
    );
}

/// One scene: the outcome of each name.
async fn play(
    bed: &Bed,
    cast: &Arc<Cast>,
    scene: Scene,
    ending: Ending,
) -> Vec<Result<(), String>> {
    let names = names(bed, scene, ending);
    let mut holder = bed.locker(&bed.direct());
    // Leases that end one after the other: so few calls are under way at a time that each is on time.
    let apart = u32::from(bed.step < Duration::from_millis(1));
    let (prefix, count, lease) = (names[0].prefix(), names.len(), bed.lease.as_millis());
    let held = holder.ask(&format!("hold {scene} {prefix} {count} {lease} {apart}"));
    assert_eq!(held, "held", "{scene}");
    let mut ready = JoinSet::new();
    for (at, name) in names.iter().cloned().enumerate() {
        let cast = cast.clone();
        let _ = ready.spawn(async move { (at, name.prepare(&cast).await) });
    }
    let mut waits = vec![false; names.len()];
    while let Some(prepared) = ready.join_next().await {
        let (at, prepared) = prepared.expect("no panic");
        waits[at] = prepared.expect("claims wait");
    }
    let said = holder.ask("ends");
    match ending {
        Ending::Stopped => until("the process stands still where it may", || {
            holder.signal(Signal::STOP);
            if (bed.stands_aside)() {
                return Ok(());
            }
            holder.signal(Signal::CONT);
            Err("it was in the way of all others".to_owned())
        }),
        Ending::Killed => holder.signal(Signal::KILL),
    }
    let at_once = ending == Ending::Killed && bed.death_is_noticed;
    let now = at_once.then(|| Clock::boot().wall());
    // A look may change how a line is kept: one scene is played without. And where a death is noticed the next one holds.
    let lines = match scene {
        Scene::Fixed => Vec::new(),
        _ if at_once => Vec::new(),
        _ => look(cast, &names).await,
    };
    let (mut parts, mut bells) = (JoinSet::new(), Vec::new());
    let waiting = names.iter().zip(said.split(' ')).zip(waits);
    for ((name, said), _) in waiting.filter(|(_, waits)| *waits) {
        let Some(due) = name.ends(said, &lines, now) else {
            name.leave(cast).await.expect("it leaves the line");
            continue;
        };
        let (bell, rings) = oneshot::channel();
        bells.push((due, bell));
        let _ = parts.spawn(name.clone().part(cast.clone(), rings));
    }
    let ringer = tokio::task::spawn_blocking(move || ring(bells));
    let mut done = Vec::new();
    while let Some(part) = parts.join_next().await {
        done.push(part.unwrap_or_else(|panic| Err(panic.to_string())));
    }
    ringer.await.expect("it rang");
    done.extend(left(cast, &names).await);
    done
}

fn names(bed: &Bed, scene: Scene, ending: Ending) -> Vec<Arc<Name>> {
    let prefix = format!("edge:{}:{scene}:{ending:?}:", std::process::id());
    let exact = bed.step < Duration::from_millis(1);
    let half = i64::try_from(bed.step.as_micros()).expect("short") / 2;
    let shift = half * i64::from(ending == Ending::Killed);
    let offsets = if exact { OFFSETS } else { ROUGH_OFFSETS };
    let around = (0..offsets).map(move |n| (2 * n - offsets + 1) * 2 * half + shift);
    // Most goes wrong just after the end: the ended claim is still stored.
    let after = (0..offsets).map(|n| n * half + shift / 2);
    let all = around.chain(after);
    let all = all.flat_map(|offset| scene.arrivals().map(|arrival| (offset, arrival)));
    let named = |(at, (offset, arrival))| Name::new(&prefix, at, scene, arrival, offset, exact);
    all.enumerate().map(named).map(Arc::new).collect()
}

/// The lines of the names.
async fn look(cast: &Cast, names: &[Arc<Name>]) -> Vec<LineView> {
    let mut lines = cast
        .newcomer
        .inspect(&Query::all())
        .await
        .expect("inspected");
    lines.retain(|line| line.name.as_str().starts_with(names[0].prefix()));
    lines
}

/// The names that are still in use after all have left.
async fn left(cast: &Cast, names: &[Arc<Name>]) -> Option<Result<(), String>> {
    let gone = eventually("nothing is left", async || match look(cast, names).await {
        lines if lines.is_empty() => Ok(()),
        lines => Err(format!("{lines:?}")),
    });
    match tokio::time::timeout(name::PATIENCE, gone).await {
        Ok(()) => None,
        Err(_) => Some(Err(format!("left in line: {:?}", look(cast, names).await))),
    }
}

/// Rings each bell when it is due. The last millisecond is not slept: no timer is as exact as the distances are.
fn ring(mut bells: Vec<(u64, oneshot::Sender<()>)>) {
    let clock = Clock::boot();
    bells.sort_by_key(|(due, _)| *due);
    for (due, bell) in bells {
        loop {
            match due.saturating_sub(clock.wall()) {
                0 => break,
                1..2_000 => std::thread::yield_now(),
                left => std::thread::park_timeout(Duration::from_micros(left - 1_500)),
            }
        }
        let _ = bell.send(());
    }
}

impl fmt::Debug for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cast({:?})", self.newcomer)
    }
}
