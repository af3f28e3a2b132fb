//! Operations whose messages are lost.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_tests::Bed;
use leasehold_tests::lost_answers::are_told;

use super::beds::{mariadb, postgres};

/// With a lease in which a connection is made anew, by a new process of the server, while others are made.
fn with_time(mut bed: Bed) -> Bed {
    bed.lease = Duration::from_secs(3);
    bed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    static BED: LazyLock<Bed> = LazyLock::new(|| with_time(postgres()));
    are_told(&BED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mariadb() {
    static BED: LazyLock<Bed> = LazyLock::new(|| with_time(mariadb()));
    are_told(&BED).await;
}
