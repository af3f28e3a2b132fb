//! Operations whose messages are lost.

use std::sync::LazyLock;

use leasehold_tests::Bed;
use leasehold_tests::lost_answers::are_told;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_true() {
    static BED: LazyLock<Bed> = LazyLock::new(super::beds::one);
    are_told(&BED).await;
}
