//! Functions under a lock, on the engine in memory.

mod blocking;
mod losses;
mod names;
mod options;
mod signatures;

use leasehold::Client;

/// Why a function of these tests fails.
#[derive(Debug)]
enum Problem {
    Busy,
    Body,
    Locks(leasehold::Error),
}

impl From<leasehold::Error> for Problem {
    fn from(error: leasehold::Error) -> Self {
        Self::Locks(error)
    }
}

impl Problem {
    fn is_lost(&self) -> bool {
        matches!(self, Self::Locks(error) if error.is_lost())
    }
}

async fn client() -> Client {
    leasehold::connect("memory:").await.expect("connected")
}

/// Whether another task of the client would find the mutex busy.
async fn is_busy(locks: &Client, name: &str) -> bool {
    let taken = locks.mutex(name).try_lock().await;
    taken.expect("memory answers").is_none()
}

#[test]
fn what_does_not_compile_says_why() {
    trybuild::TestCases::new().compile_fail("tests/compile/*.rs");
}
