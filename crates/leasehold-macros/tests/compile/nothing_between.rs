#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "stock:{shop}-{id}")]
async fn sell(locks: &Client, shop: u64, id: u64) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
