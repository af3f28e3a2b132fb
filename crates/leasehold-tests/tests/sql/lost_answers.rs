//! Operations whose messages are lost.

use std::sync::LazyLock;

use leasehold_tests::Bed;
use leasehold_tests::lost_answers::are_told;

use super::beds::{mariadb, postgres};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    static BED: LazyLock<Bed> = LazyLock::new(postgres);
    are_told(&BED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mariadb() {
    static BED: LazyLock<Bed> = LazyLock::new(mariadb);
    are_told(&BED).await;
}
