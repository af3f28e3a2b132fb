#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x", lost = drop)]
fn sell(locks: &leasehold::blocking::Client) -> leasehold::Result<()> {
    let _: Option<Client> = None;
    Ok(())
}

fn main() {}
