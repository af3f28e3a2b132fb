#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks)]
async fn sell(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
