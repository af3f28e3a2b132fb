//! Operations whose messages are lost.

use leasehold_tests::lost_answers::are_told;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_true() {
    are_told(super::beds::one()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_true_of_consuls_own_locks() {
    are_told(super::beds::theirs()).await;
}
