#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

struct Item;

#[locked(locks, "stock:{item}")]
async fn sell(locks: &Client, item: Item) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
