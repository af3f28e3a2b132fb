//! A key of Redis as a lock, made by hand, in the five stages in which programs get there. Each stage mends a fault of the one before
//! it and has one of its own. The last has two that no change of the client's few lines mends: no renewal, no fence.

use super::Work;
use crate::answer::{Answer, Outcome};
use crate::switch::Point;

/// A stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// SETNX, then DEL. A holder that dies leaves the lock for ever.
    NoExpiry,
    /// SETNX, then EXPIRE, then DEL. A holder that dies between the first two leaves the lock for ever.
    ExpiryAfter,
    /// SET NX PX, then DEL. A holder that takes too long deletes the lock of the next one.
    Delete,
    /// SET NX PX with a value of its own, GET, and DEL if it is that value. The lock may pass on between the last two.
    GetThenDelete,
    /// SET NX PX with a value of its own, and a script that compares and deletes. A holder that takes too long is not alone.
    Script,
}

/// The key of an item's lock.
pub fn key(item: u64) -> String {
    format!("shop:lock:{item}")
}

pub(super) async fn buy(work: &Work<'_>, stage: Stage) -> Outcome<Answer> {
    let mine = rand::random::<u128>().to_string();
    if !take(work, stage, &mine).await? {
        return Ok(Answer::Busy);
    }
    let answer = work.app.stock.sell(work).await;
    give_back(work, stage, &mine).await?;
    answer
}

async fn take(work: &Work<'_>, stage: Stage, mine: &str) -> Outcome<bool> {
    let (stock, key) = (&work.app.stock, key(work.item));
    let expiry = work.app.settings.expiry.as_millis() as u64;
    if stage >= Stage::Delete {
        return stock.set_nx(&key, mine, Some(expiry)).await;
    }
    let taken = stock.set_nx(&key, mine, None).await?;
    if taken && stage == Stage::ExpiryAfter {
        work.switch.at(Point::Taken, work.app).await?;
        stock.expire(&key, expiry).await?;
    }
    Ok(taken)
}

async fn give_back(work: &Work<'_>, stage: Stage, mine: &str) -> Outcome<()> {
    let (stock, key) = (&work.app.stock, key(work.item));
    match stage {
        Stage::NoExpiry | Stage::ExpiryAfter | Stage::Delete => stock.delete(&key).await,
        Stage::GetThenDelete => {
            if stock.get(&key).await?.as_deref() == Some(mine) {
                work.switch.at(Point::Looked, work.app).await?;
                stock.delete(&key).await?;
            }
            Ok(())
        }
        Stage::Script => stock.delete_if(&key, mine).await,
    }
}
