//! Segmented stock: the pieces are spread over many locks, and buyers seldom meet.

use leasehold::Stock;

use super::Work;
use crate::answer::{Answer, Outcome};
use crate::app::App;
use crate::stock::Books;

/// Segments of an item.
const SEGMENTS: u32 = 16;

fn stock(app: &App, item: u64) -> Stock {
    app.locks.stock(format!("item:{item}"), SEGMENTS)
}

pub(super) async fn buy(work: &Work<'_>) -> Outcome<Answer> {
    if !stock(work.app, work.item).take(1).await? {
        return Ok(Answer::SoldOut);
    }
    // The piece is this request's: what else a sale does needs no lock.
    work.think().await?;
    work.app.stock.note_sale(work.item).await?;
    Ok(Answer::Sold)
}

pub(super) async fn fill(app: &App, item: u64, left: i64) -> Outcome<()> {
    app.stock.fill(item, 0).await?;
    let left = u64::try_from(left).unwrap_or(0);
    Ok(stock(app, item).refill(left).await?)
}

pub(super) async fn books(app: &App, item: u64) -> Outcome<Books> {
    let left = stock(app, item).total().await?.cast_signed();
    let sold = app.stock.books(item).await?.sold;
    Ok(Books { left, sold })
}
