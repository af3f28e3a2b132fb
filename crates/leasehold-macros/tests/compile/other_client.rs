#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x")]
async fn sell(locks: &leasehold::blocking::Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x")]
fn sell_blocking(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
