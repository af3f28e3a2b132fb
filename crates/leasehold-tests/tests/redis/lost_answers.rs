//! Operations whose messages are lost: own layout, Redisson's, and Redlock.

use std::sync::LazyLock;

use leasehold_tests::Bed;
use leasehold_tests::lost_answers::are_told;

use super::beds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_own_layout() {
    static BED: LazyLock<Bed> = LazyLock::new(beds::own);
    are_told(&BED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_redissons_layout() {
    static BED: LazyLock<Bed> = LazyLock::new(beds::redisson);
    are_told(&BED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_all_nodes_of_redlock() {
    static BED: LazyLock<Bed> = LazyLock::new(beds::redlock);
    are_told(&BED).await;
}
