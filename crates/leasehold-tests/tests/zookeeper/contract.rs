//! The whole contract on ZooKeeper: one server, one through TLS, and an ensemble of three.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::conformance::Subject;
use leasehold::engine::{Url, ZooKeeper as Engine};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::servers::zookeeper::{Ensemble, ZooKeeper};

/// A lease here is the end of a ZooKeeper session, and those are not given out in milliseconds.
const LEASE: Duration = Duration::from_secs(2);
const PATH: &str = "/check/locks";

/// One server for all checks, an engine of its own for each: every test has a runtime of its own.
fn subject(url: &str) -> Subject {
    let url = Url::parse(url).expect("a URL");
    let engine = Engine::from_url(&url).expect("an engine").lease(LEASE);
    let mut subject = Subject::new(engine);
    subject.lease = LEASE;
    subject
}

mod standalone {
    use super::*;

    fn one() -> &'static ZooKeeper {
        static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
        SERVER.get_or_init(ZooKeeper::start)
    }

    leasehold::conformance_tests!(subject(&format!("{}{PATH}", one().url())));
}

mod secured {
    use super::*;

    fn one() -> &'static ZooKeeper {
        static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
        SERVER.get_or_init(ZooKeeper::tls)
    }

    leasehold::conformance_tests!(subject(&one().secured(PATH)));
}

mod ensemble {
    use super::*;

    fn three() -> &'static Ensemble {
        static SERVERS: OnceLock<Ensemble> = OnceLock::new();
        SERVERS.get_or_init(Ensemble::start)
    }

    leasehold::conformance_tests!(subject(&format!("{}{PATH}", three().url())));
}

mod own {
    use super::*;
    use leasehold::engine::Query;
    use leasehold::{ConnectOptions, ErrorKind};

    fn one() -> &'static ZooKeeper {
        static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
        SERVER.get_or_init(ZooKeeper::start)
    }

    /// A run on another version says which.
    #[test]
    fn the_version_of_the_server_is_printed() {
        println!("{}", one().version());
    }

    /// A lease is the end of a session, and the server decides how long those may be.
    #[tokio::test]
    async fn a_lease_is_as_long_as_the_server_says() {
        let client = leasehold::connect(&one().url()).await.expect("connected");
        let long = client.mutex("x").lease(Duration::from_secs(1000));
        let refused = long.lock().await.expect_err("beyond maxSessionTimeout");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("at most 90s"), "{refused}");
        // A third longer than asked for: the holder is the first to know.
        let mutex = client.mutex("x").lease(Duration::from_secs(3));
        let guard = mutex.lock().await.expect("free");
        let kept = Duration::from_millis(4_001);
        assert_eq!(guard.lease(), kept);
        assert!(guard.remaining() <= Duration::from_secs(3));
        let query = Query::name(guard.name().clone());
        let lines = client.inspect(&query).await.expect("inspected");
        assert_eq!(lines[0].holders[0].lease, Some(kept));
        let _ = guard.release().await.expect("released");
        // Never shorter than two ticks there, and kept here all the same.
        let short = client.mutex("x").lease(Duration::from_millis(250));
        let short = short.keep_alive(false);
        // The first claim of a lease opens a session; on a busy machine that may take longer than the lease.
        let guard = eventually("a lease of 250 ms", async || {
            short.lock().await.map_err(|error| error.to_string())
        })
        .await;
        assert_eq!(guard.lease(), Duration::from_millis(400));
        let _ = guard.lost().await;
    }

    /// A client without the login does not get at nodes that were made with it, and the login is never shown.
    #[tokio::test]
    async fn a_login_keeps_others_out() {
        let address = one().address();
        let url = format!("zookeeper://me:hunter2@{address}/private?acl=creator");
        let mine = leasehold::connect(&url).await.expect("connected");
        let held = mine.mutex("x").lock().await.expect("free");
        let other = format!("zookeeper://{address}/private");
        let other = leasehold::connect(&other).await.expect("connected");
        let denied = other.mutex("x").lock().await.expect_err("no login");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert!(!format!("{mine:?} {denied:?}").contains("hunter2"));
        let url = format!("zookeeper://{address}/private?acl=creator&auth=digest:me:hunter2");
        let same = leasehold::connect(&url).await.expect("connected");
        assert!(same.mutex("x").try_lock().await.expect("a try").is_none());
        drop(held);
    }

    /// A login that the server does not know is refused when connecting, and not shown.
    #[tokio::test]
    async fn a_login_that_is_not_known_is_denied() {
        let url = format!("zookeeper://{}/?auth=nonsense:hunter2", one().address());
        let denied = leasehold::connect(&url).await.expect_err("no such scheme");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert!(!format!("{denied:?} {denied}").contains("hunter2"));
    }

    /// A server that cannot be reached is an error, and soon.
    #[tokio::test]
    async fn a_server_that_is_not_there_is_an_error() {
        let port = leasehold_testkit::servers::free_port();
        let options = ConnectOptions::new().lease(LEASE);
        let opened = options
            .connect(&format!("zookeeper://127.0.0.1:{port}"))
            .await;
        let error = opened.expect_err("no server listens");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }

    /// A name in use as one kind is refused as another, and free again afterwards.
    #[tokio::test]
    async fn another_kind_is_refused_with_the_kind_in_use() {
        let client = leasehold::connect(&one().url()).await.expect("connected");
        let other = leasehold::connect(&one().url()).await.expect("connected");
        let mutex = client.mutex("kind").lock().await.expect("free");
        for refused in [
            other.rwlock("kind").read().await.expect_err("a read lock"),
            other
                .semaphore("kind", 2)
                .acquire()
                .await
                .expect_err("permits"),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            assert!(refused.to_string().contains("as a mutex"), "{refused}");
        }
        let _ = mutex.release().await.expect("released");
        let write = client.rwlock("kind").write().await.expect("free again");
        let refused = other.mutex("kind").lock().await.expect_err("a mutex");
        assert!(
            refused.to_string().contains("as a read/write lock"),
            "{refused}"
        );
        drop(write);
    }
}
