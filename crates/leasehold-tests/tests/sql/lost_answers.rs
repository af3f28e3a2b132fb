//! Operations whose messages are lost.

use leasehold_tests::lost_answers::are_told;

use super::beds::{mariadb, postgres};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    are_told(postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mariadb() {
    are_told(mariadb()).await;
}
