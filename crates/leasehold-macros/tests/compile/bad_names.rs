#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "")]
async fn empty(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "two\nlines")]
async fn lines(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "{id:>width$}")]
async fn width(locks: &Client, id: u64, width: usize) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
