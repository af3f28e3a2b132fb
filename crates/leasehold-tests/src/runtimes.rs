//! Runtimes that end: a client lives on the runtime that connected it, and calls come from others too.

use std::future::Future;
use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard, GuardState, Released};
use tokio::runtime::{Builder, Runtime};

use crate::Bed;

/// Longer than any answer takes, and shorter than waiting for ever.
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(1).enable_all().build();
    built.expect("a runtime")
}

/// What comes of it within a time in which everything answers.
async fn soon<T>(what: &str, answer: impl Future<Output = leasehold::Result<T>>) -> T {
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what}: no answer"));
    answer.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// A guard that was taken on another runtime, and a wait that ended with it.
async fn visit(client: &Client, lease: Duration) -> Guard {
    let waits = client.mutex("taken").lease(lease);
    drop(tokio::spawn(async move { waits.lock().await.map(drop) }));
    soon("a lock", client.mutex("kept").lease(lease).lock()).await
}

/// A lock that was taken on a runtime which has ended since is renewed and given back, what waited there leaves nothing, and
/// the client works on.
///
/// # Panics
/// If one of these is not so.
pub fn of_callers_may_end(bed: &Bed) {
    let home = runtime();
    let (client, rival) = home.block_on(async { (bed.client().await, bed.client().await) });
    // A lease of its own, so that whatever an engine opens for a lease is opened by the visitor.
    for lease in [bed.lease, bed.lease * 3 / 2] {
        let taken = home.block_on(soon("a lock", rival.mutex("taken").lock()));
        let guest = runtime();
        let guard = guest.block_on(visit(&client, lease));
        guest.shutdown_timeout(PATIENCE);
        home.block_on(async {
            let lost = tokio::time::timeout(lease * 2, guard.lost()).await;
            assert!(lost.is_err(), "not renewed: {lost:?}");
            let released = soon("a release", guard.release()).await;
            assert_eq!(released, Released::Released);
            let _ = soon("a release", taken.release()).await;
            for name in ["kept", "taken"] {
                // Free before its lease could have ended: on Redlock a node may hear of a release after it was told.
                let mutex = rival.mutex(name);
                let free = soon(name, mutex.lock_within(lease / 2)).await;
                assert!(free.is_some(), "{name} is not free");
                drop(free);
                let again = client.mutex(name).lease(lease);
                drop(soon(name, again.lock()).await);
            }
        });
    }
}

/// A client whose own runtime has ended refuses: no task would renew what it gave.
///
/// # Panics
/// If it does not.
pub fn of_the_client_is_gone(bed: &Bed) {
    let (home, guest) = (runtime(), runtime());
    let (client, guard) = home.block_on(async {
        let client = bed.client().await;
        let guard = soon("a lock", client.mutex("gone").lock()).await;
        (client, guard)
    });
    home.shutdown_timeout(PATIENCE);
    guest.block_on(async {
        assert_eq!(guard.state(), GuardState::Lost);
        for name in ["gone", "free"] {
            let asked = tokio::time::timeout(PATIENCE, client.mutex(name).lock()).await;
            let error = asked.expect("an answer").expect_err("no task renews it");
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
        let released = soon("a release", guard.release()).await;
        assert_eq!(released, Released::WasLost);
        let shut = client.shutdown(Duration::from_secs(1));
        drop(
            tokio::time::timeout(PATIENCE, shut)
                .await
                .expect("an answer"),
        );
    });
}
