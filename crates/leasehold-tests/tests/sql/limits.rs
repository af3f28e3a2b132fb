//! The end of a line: claims of a program that another person wrote fill it.

use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{ConnectOptions, ErrorKind, Name};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

/// A holder, a waiter, and 19,998 copies of the waiter's row: the next claim is refused, and a try is told that it is busy.
async fn has_an_end(
    url: &str,
    numbers: &str,
    id: &str,
    sql: impl Fn(&str) -> String + Send + Sync,
) {
    let lease = Duration::from_secs(60);
    let connect = async || ConnectOptions::new().lease(lease).connect(url).await;
    let (holder, waiter, late) = (connect().await, connect().await, connect().await);
    let (holder, waiter) = (holder.expect("connected"), waiter.expect("connected"));
    let late = late.expect("connected");
    let guard = holder.mutex("x").lock().await.expect("free");
    let waits = tokio::spawn(async move { waiter.mutex("x").lock().await });
    let query = Query::name(Name::new("x").expect("a name"));
    eventually("it waits", async || {
        let lines = late.inspect(&query).await.expect("inspected");
        let waits = lines.first().is_some_and(|line| line.waiters.len() == 1);
        waits.then_some(()).ok_or(format!("{lines:?}"))
    })
    .await;
    let _ = sql(&format!(
        "INSERT INTO leasehold_claim (k, place, id, session, weight, lease, since, deadline, fence) \
         SELECT k, place + n, {id}, session, weight, lease, since, deadline + 3600000000, fence \
         FROM leasehold_claim, {numbers} WHERE fence = 0; \
         UPDATE leasehold_line SET weight = weight + 19998, fence = fence + 19998"
    ));
    let claims = || {
        sql("SELECT count(*) FROM leasehold_claim")
            .trim()
            .to_owned()
    };
    assert_eq!(claims(), "20000");
    let refused = late.mutex("x").lock().await.expect_err("one too many");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    let busy = late.mutex("x").try_lock().await.expect("an answer");
    assert!(busy.is_none());
    assert_eq!(claims(), "20000", "it left a row");
    drop(late.mutex("y").lock().await.expect("another name is free"));
    let _ = guard.release().await.expect("released");
    drop(waits.await.expect("no panic").expect("granted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_postgres_has_an_end() {
    let server = Postgres::start();
    let numbers = "generate_series(1, 19998) AS numbers(n)";
    let id = "decode(md5(n::text), 'hex')";
    has_an_end(&server.url(), numbers, id, |text| server.sql(text)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_mariadb_has_an_end() {
    let server = MariaDb::start();
    let numbers = "(SELECT seq AS n FROM seq_1_to_19998) AS numbers";
    let id = "UNHEX(MD5(n))";
    has_an_end(&server.url(), numbers, id, |text| {
        server.sql(&format!("USE lab; {text}"))
    })
    .await;
}
