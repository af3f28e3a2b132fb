#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x", read, write)]
async fn both(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", write, of = 4)]
async fn writing_permits(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", permits = 2)]
async fn of_how_many(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

#[locked(locks, "x", permits = 5, of = 4)]
async fn too_many(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
