//! Operations whose messages are lost: own layout, Redisson's, and Redlock.

use leasehold_tests::lost_answers::are_told;

use super::beds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_own_layout() {
    are_told(beds::own()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_redissons_layout() {
    are_told(beds::redisson()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_all_nodes_of_redlock() {
    are_told(beds::redlock()).await;
}
