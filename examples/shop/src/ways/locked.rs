//! Leasehold, on whatever engine `LEASEHOLD_URL` names.

use std::time::Duration;

use leasehold::{Guard, Mutex};

use super::Work;
use crate::answer::{Answer, Outcome};

/// How long a buyer waits in line.
const PATIENCE: Duration = Duration::from_secs(10);

fn mutex(work: &Work<'_>) -> Mutex {
    work.app.locks.mutex(format!("stock:{}", work.item))
}

/// "Busy" at once: the caller is told to come again.
pub(super) async fn fail_fast(work: &Work<'_>) -> Outcome<Answer> {
    match mutex(work).try_lock().await? {
        Some(guard) => sell(work, guard).await,
        None => Ok(Answer::Busy),
    }
}

/// In line, for at most so long.
pub(super) async fn waiting(work: &Work<'_>) -> Outcome<Answer> {
    match mutex(work).lock_within(PATIENCE).await? {
        Some(guard) => sell(work, guard).await,
        None => Ok(Answer::Busy),
    }
}

async fn sell(work: &Work<'_>, guard: Guard) -> Outcome<Answer> {
    let answer = work.app.stock.sell_fenced(work, guard.fence()).await;
    // What the stock took came with the latest fence: a lock that was lost since takes nothing back.
    let _ = guard.release().await;
    answer
}
