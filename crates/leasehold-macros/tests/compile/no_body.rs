#![allow(unused_variables, reason = "an attribute that is refused uses none")]

use leasehold::{Client, locked};

trait Sells {
    #[locked(self.locks, "x")]
    async fn sell(&self) -> leasehold::Result<()>;
}

#[locked(locks, "x")]
struct Shop {
    locks: Client,
}

#[locked(locks, "x")]
const fn constant(locks: &Client) -> leasehold::Result<()> {
    Ok(())
}

fn main() {}
