//! The instance's own lock, as `synchronized`: right in one process, and two instances have two of them.

use super::Work;
use crate::answer::{Answer, Outcome};

pub(super) async fn buy(work: &Work<'_>) -> Outcome<Answer> {
    let _guard = work.app.own.lock().await;
    work.app.stock.sell(work).await
}
