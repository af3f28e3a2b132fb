#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

struct Problem;

#[locked(locks, "x")]
async fn sell(locks: &Client) -> Result<u8, Problem> {
    Ok(7)
}

#[locked(locks, "x")]
fn sell_blocking(locks: &leasehold::blocking::Client) -> Result<u8, Problem> {
    Ok(7)
}

fn main() {}
