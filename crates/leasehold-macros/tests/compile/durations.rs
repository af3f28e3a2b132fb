#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x", wait = "2", busy = Ok(()))]
async fn no_unit(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", wait = "0s", busy = Ok(()))]
async fn no_wait(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", lease = "soon")]
async fn long(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", lease = "25h")]
async fn longer(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
