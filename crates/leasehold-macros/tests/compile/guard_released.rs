#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x", guard = guard)]
async fn sell(locks: &Client) -> leasehold::Result<()> {
    guard.release().await?;
    Ok(())
}

fn main() {}
