//! The same schedules on Leasehold, over the file engine.

use std::path::Path;
use std::time::Duration;

use leasehold::{Client, Gate, Guard, Options, Released};
use leasehold_testkit::process::Process;

use super::stage::{Asks, Stage};
use crate::Outcome;

const NAME: &str = "stock:42";

/// Long enough to be renewed on a busy machine.
const LEASE: Duration = Duration::from_millis(500);

async fn client(dir: &Path) -> Outcome<Client> {
    let url = format!("file:{}", dir.join("locks").display());
    Ok(Options::new().lease(LEASE).connect(&url).await?)
}

fn holds(asks: &Asks, guard: &Guard) {
    asks.holds_for(guard.fence().get(), guard.remaining());
}

async fn release(asks: &Asks, guard: Guard) -> Outcome<()> {
    asks.releases();
    asks.was_told(guard.release().await? == Released::Released);
    Ok(())
}

/// Two instances ask for one name: the second waits.
pub(super) async fn two(stage: &Stage, dir: &Path) -> Outcome<()> {
    let (one, two) = (client(dir).await?, client(dir).await?);
    let a = stage.asks("A");
    let first = one.mutex(NAME).lock().await?;
    holds(&a, &first);
    let b = stage.asks("B");
    let second = async {
        let second = two.mutex(NAME).lock().await?;
        holds(&b, &second);
        release(&b, second).await
    };
    let end = async {
        // Longer than the lease: it is renewed.
        tokio::time::sleep(LEASE * 2).await;
        match first.check() {
            Ok(()) => a.still_holds(first.remaining()),
            Err(_) => a.lost(),
        }
        release(&a, first).await
    };
    let (second, end) = tokio::join!(second, end);
    second.and(end)
}

/// The holder is a process that is killed.
pub(super) async fn death(stage: &Stage, dir: &Path) -> Outcome<()> {
    let url = format!("file:{}", dir.join("locks").display());
    let mut command = std::process::Command::new(program());
    let holder = Process::start(command.args(["hold", &url, NAME, &LEASE.as_millis().to_string()]));
    let a = stage.asks("A");
    let fence = holder.hear().parse()?;
    a.holds_for(fence, LEASE);
    stage.dies("A");
    holder.kill();
    let b = stage.asks("B");
    let guard = client(dir).await?.mutex(NAME).lock().await?;
    holds(&b, &guard);
    release(&b, guard).await
}

/// This program; of a test, the one that was built with it.
fn program() -> std::path::PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own
        .parent()
        .and_then(Path::parent)
        .map(|dir| dir.join("leasehold-lab"));
    match beside {
        Some(beside) if own.file_name() != Some("leasehold-lab".as_ref()) && beside.exists() => {
            beside
        }
        _ => own,
    }
}

/// The holder's lease is over before it is done; it then releases. Without renewal, as the broken ones.
pub(super) async fn overrun(stage: &Stage, dir: &Path) -> Outcome<()> {
    let (one, two, three) = (client(dir).await?, client(dir).await?, client(dir).await?);
    let gate = Gate::new();
    let a = stage.asks("A");
    let first = one.mutex(NAME).keep_alive(false).lock().await?;
    holds(&a, &first);
    gate.admit(first.fence())
        .map_err(|stale| stale.to_string())?;
    let b = stage.asks("B");
    let second = two.mutex(NAME).lock().await?;
    holds(&b, &second);
    let taken = gate.admit(second.fence()).is_ok();
    stage.effect("B", second.fence().get(), taken);
    // A goes on as if nothing had happened.
    stage.effect("A", first.fence().get(), gate.admit(first.fence()).is_ok());
    a.lost();
    release(&a, first).await?;
    let c = stage.asks("C");
    match three.mutex(NAME).try_lock().await? {
        Some(third) => holds(&c, &third),
        None => c.gives_up(),
    }
    release(&b, second).await
}

/// The engine is left and opened again: fences go on.
pub(super) async fn fences(stage: &Stage, dir: &Path) -> Outcome<()> {
    for who in ["A", "B", "C"] {
        let client = client(dir).await?;
        let asks = stage.asks(who);
        let guard = client.mutex(NAME).lock().await?;
        holds(&asks, &guard);
        release(&asks, guard).await?;
        let _ = client.shutdown(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Holds a lock until it is killed: the one that dies in an exhibit.
///
/// # Errors
/// If the lock cannot be had.
pub async fn hold(url: &str, name: &str, lease: Duration) -> Outcome<()> {
    let guard = Options::new()
        .lease(lease)
        .connect(url)
        .await?
        .mutex(name)
        .lock()
        .await?;
    println!("{}", guard.fence());
    std::future::pending().await
}
