#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x", wait = "2s")]
async fn waits(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", try)]
async fn tries(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", busy = Ok(()))]
async fn never(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", try, busy = None)]
async fn other(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
