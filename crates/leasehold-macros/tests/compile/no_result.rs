#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

#[locked(locks, "x")]
async fn nothing(locks: &Client) {}

#[locked(locks, "x")]
async fn number(locks: &Client) -> u8 {
    7
}

#[locked(locks, "x")]
fn future(locks: &Client) -> impl Future<Output = leasehold::Result<()>> {
    async { Ok(()) }
}

fn main() {}
