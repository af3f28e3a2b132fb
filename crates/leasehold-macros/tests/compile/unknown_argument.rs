#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "stock:{item}")]
async fn sell(locks: &Client, id: u64) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
