//! The table of values: made when it is needed, refused where it may not be made, and cleaned.

use std::time::Duration;

use leasehold::{ErrorKind, Fence, Name, store};
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

/// Tables of a version that had no values get the table; a client that may only check says how it is made.
async fn upgrade(url: &str, sql: impl Fn(&str) -> String + Send + Sync) {
    let client = leasehold::connect(url).await.expect("connected");
    let _ = sql("DROP TABLE leasehold_store");
    let separator = if url.contains('?') { '&' } else { '?' };
    let checks = store::open(&format!("{url}{separator}schema=check")).expect("a store");
    let key = Name::new("x").expect("a name");
    let refused = checks.get(&key).await.expect_err("the table is missing");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        refused.to_string().contains("leasehold schema"),
        "{refused}"
    );
    client.stock("item", 2).refill(3).await.expect("made");
    assert_eq!(sql("SELECT count(*) FROM leasehold_store").trim(), "2");
}

/// Rows whose fences may be forgotten are removed by those that are made; the others stay.
async fn cleaning(url: &str, sql: impl Fn(&str) -> String + Send + Sync) {
    let store = store::open(url).expect("a store");
    let (fence, keep) = (Fence::new(1), Some(Duration::from_secs(60)));
    let put = async |name: String| {
        let key = Name::new(name).expect("a name");
        let put = store.put(&key, fence, Some(b"v"), keep).await;
        assert_eq!(put.expect("answered"), Ok(()));
    };
    put("kept".to_owned()).await;
    for key in 0..200 {
        put(format!("old:{key}")).await;
    }
    let _ = sql("UPDATE leasehold_store SET ends = 1, gone = 1 WHERE fence = 1");
    put("kept".to_owned()).await;
    let old = || sql("SELECT count(*) FROM leasehold_store WHERE gone = 1");
    let (before, mut made) = (old(), 0);
    assert_eq!(before.trim(), "200");
    while old() == before {
        assert!(made < 2_000, "no row that is gone was removed");
        put(format!("new:{made}")).await;
        made += 1;
    }
    let kept = store.get(&Name::new("kept").expect("a name")).await;
    assert_eq!(kept.expect("read").expect("kept").value, b"v");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = Postgres::start();
    upgrade(&server.url(), |text| server.sql(text)).await;
    cleaning(&server.url(), |text| server.sql(text)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let server = MariaDb::start();
    upgrade(&server.url(), |text| {
        server.sql(&format!("USE lab; {text}"))
    })
    .await;
    cleaning(&server.url(), |text| {
        server.sql(&format!("USE lab; {text}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    let sql = |text: &str| {
        let file = rusqlite::Connection::open(&file).expect("opened");
        file.busy_timeout(Duration::from_secs(5)).expect("set");
        match text.starts_with("SELECT") {
            true => {
                let read = file.query_row(text, [], |row| row.get::<_, i64>(0));
                read.expect("read").to_string()
            }
            false => file.execute(text, []).expect("done").to_string(),
        }
    };
    upgrade(&url, sql).await;
    cleaning(&url, sql).await;
}
