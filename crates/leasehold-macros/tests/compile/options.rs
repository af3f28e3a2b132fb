#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x", wiat = "2s")]
async fn misspelled(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", lease = "1s", lease = "2s")]
async fn twice(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", try, wait = "2s", busy = Ok(()))]
async fn both(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", lost = ignore)]
async fn ignores(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
