//! Around the end of a dead holder's lease.

use leasehold_tests::edge::{Ending, passes_on};

use super::beds::{engine, mariadb, postgres, sqlite};

macro_rules! edge {
    ($database:ident, $bed:expr) => {
        mod $database {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn of_a_stopped_holder() {
                passes_on(&$bed, engine(&$bed), Ending::Stopped).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn of_a_killed_holder() {
                passes_on(&$bed, engine(&$bed), Ending::Killed).await;
            }
        }
    };
}

edge!(on_postgres, postgres());
edge!(on_mariadb, mariadb());

async fn on_sqlite(ending: Ending) {
    let home = tempfile::tempdir().expect("a directory");
    let bed = sqlite(home.path());
    passes_on(&bed, engine(&bed), ending).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder_on_sqlite() {
    on_sqlite(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder_on_sqlite() {
    on_sqlite(Ending::Killed).await;
}
