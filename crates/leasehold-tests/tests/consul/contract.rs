//! The whole contract on Consul: one server, one through TLS, one through a Unix socket, and three that are one.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::conformance::Subject;
use leasehold::engine::{Consul as Engine, Url};
use leasehold_testkit::servers::consul::{Consul, ROOT_TOKEN, Three};

const LEASE: Duration = Duration::from_secs(1);
const PATH: &str = "/check/locks";

fn subject(url: &str) -> Subject {
    let url = Url::parse(url).expect("a URL");
    let engine = Engine::from_url(&url).expect("an engine").lease(LEASE);
    let mut subject = Subject::new(engine);
    subject.lease = LEASE;
    subject
}

fn one() -> &'static Consul {
    static SERVER: OnceLock<Consul> = OnceLock::new();
    SERVER.get_or_init(Consul::start)
}

mod alone {
    use super::*;

    leasehold::conformance_tests!(subject(&format!("{}{PATH}", one().url())));
}

mod three {
    use super::*;

    fn three() -> &'static Three {
        static SERVERS: OnceLock<Three> = OnceLock::new();
        SERVERS.get_or_init(Three::start)
    }

    leasehold::conformance_tests!(subject(&format!("{}{PATH}", three().url())));
}

/// The locks of `consul lock` and of Go's API.
mod shared {
    use super::*;
    use leasehold::engine::ConsulLocks;

    fn subject(options: &str) -> Subject {
        let url = format!("{}{PATH}?layout=consul{options}", one().url());
        let url = Url::parse(&url).expect("a URL");
        let engine = ConsulLocks::from_url(&url).expect("an engine").lease(LEASE);
        let mut subject = Subject::new(engine);
        subject.lease = LEASE;
        subject
    }

    // All but the two of linger: Consul does not tell of waiters in other processes, so nothing lingers.
    leasehold::conformance_tests! { @each subject("");
        exclusion: one_holder_at_a_time, readers_together_writers_alone, permits_never_exceed,
            another_capacity_is_refused, another_kind_is_refused_while_permits_pass, names_never_collide,
                tasks_of_two_clients_count_exactly;
        order: first_come_first_served, a_waiting_writer_is_not_passed, a_writer_that_leaves_lets_no_claim_in,
            a_heavy_claim_is_not_passed, a_try_never_joins, strict_tasks_go_in_order_across_sessions;
        fences: grow_over_turns_and_grants, grow_over_idle_times, survive_many_quick_grants;
        ends: release_hands_over_at_once, eviction_is_told, a_silent_session_loses_its_claims,
            closing_frees_at_once, dropped_guards_are_given_back, drop_works_without_a_runtime,
            renewal_outlives_the_lease, a_fixed_lease_ends, shutdown_drains, shutdown_tells_waiters;
        asking: a_holder_is_asked, a_grant_asked_for_is_given_back;
        reentrant: reentrant_by_task, join_branches_are_one_task, reentrant_by_owner, reentrant_read_write;
        kinds: downgrade_lets_readers_in, multi_is_all_or_none, multi_never_deadlocks, run_ends_when_lost,
            min_hold_keeps_others_out, permits_out_of_range_are_refused, lock_within_gives_up;
        turns: grants_pass_from_task_to_task, turns_are_bounded_while_others_wait, turns_are_bounded_in_time,
            readers_share_one_claim, shared_reads_are_bounded;
        cancel: lock_at_every_await, lock_that_is_never_polled_again, lock_while_waiting, lock_when_granted, try_lock_at_every_await,
            local_waiters, rwlock_and_semaphore, multi, release_at_every_await, downgrade_at_every_await,
            lock_within_races_the_grant;
        raw: operations_are_idempotent, release_counts_once, a_try_answers_busy, heartbeat_answers_each,
            inspect_shows_holders_and_waiters, dropped_claim_then_release_leaves_nothing;
    }
}

mod own {
    use super::*;
    use leasehold::engine::Query;
    use leasehold::{ConnectOptions, ErrorKind};

    /// A run on another version says which.
    #[test]
    fn the_version_of_the_server_is_printed() {
        println!("{}", leasehold_testkit::servers::consul::version());
    }

    /// Through TLS, with a certificate of our own.
    #[tokio::test]
    async fn a_lock_is_taken_through_tls() {
        let server = Consul::tls();
        let client = leasehold::connect(&server.secured("/x")).await;
        let client = client.expect("connected");
        let guard = client.mutex("x").lock().await.expect("free");
        let plain = leasehold::connect(&format!("{}/x", server.url())).await;
        let plain = plain.expect("connected");
        assert!(plain.mutex("x").try_lock().await.expect("a try").is_none());
        drop(guard);
    }

    /// Through the agent's Unix socket.
    #[tokio::test]
    async fn a_lock_is_taken_through_a_unix_socket() {
        let client = leasehold::connect(&one().socket())
            .await
            .expect("connected");
        let guard = client.mutex("unix").lock().await.expect("free");
        let plain = leasehold::connect(&one().url()).await.expect("connected");
        assert!(
            plain
                .mutex("unix")
                .try_lock()
                .await
                .expect("a try")
                .is_none()
        );
        drop(guard);
    }

    /// A lease is what the server makes of it: never shorter than its shortest session, ended up to twice as late.
    #[tokio::test]
    async fn a_lease_is_what_the_server_makes_of_it() {
        let server = Consul::with_defaults();
        let client = leasehold::connect(&server.url()).await.expect("connected");
        let mutex = client.mutex("x").lease(Duration::from_secs(3));
        let guard = mutex.lock().await.expect("free");
        let kept = Duration::from_secs(20);
        assert_eq!(guard.lease(), kept);
        assert!(guard.remaining() <= Duration::from_secs(3));
        let query = Query::name(guard.name().clone());
        let lines = client.inspect(&query).await.expect("inspected");
        assert_eq!(lines[0].holders[0].lease, Some(kept));
        let _ = guard.release().await.expect("released");
        let long = client.mutex("x").lease(Duration::from_secs(40));
        let guard = long.lock().await.expect("free");
        assert_eq!(guard.lease(), Duration::from_secs(80));
        let longest = client.mutex("y").lease(Duration::from_secs(100_000));
        let refused = longest.lock().await.expect_err("beyond a day");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }

    /// A token that is not enough is told the rule that it needs, and is never shown.
    #[tokio::test]
    async fn a_token_without_the_right_is_told_which() {
        let server = Consul::guarded();
        let url = format!("consul://:hunter2@{}/locks", server.address());
        let denied = leasehold::connect(&url).await.expect_err("no such token");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        let said = format!("{denied} {denied:?}");
        assert!(said.contains("session_prefix"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let rules = r#"{"Name": "p", "Rules": "session_prefix \"\" { policy = \"write\" } key_prefix \"other/\" { policy = \"write\" }"}"#;
        let _ = server.ask("PUT", "acl/policy", rules).expect("a policy");
        let secret = "9f6a0f3e-0d3f-4b4f-8a8c-4a3f0b7a1c22";
        let token = format!(r#"{{"SecretID": "{secret}", "Policies": [{{"Name": "p"}}]}}"#);
        let _ = server.ask("PUT", "acl/token", &token).expect("a token");
        let url = format!("consul://{}/locks?token={secret}", server.address());
        let denied = leasehold::connect(&url)
            .await
            .expect_err("no right to the keys");
        let said = format!("{denied} {denied:?}");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{said}");
        assert!(
            said.contains(r#"key_prefix "locks/""#) || said.contains(r#"key_prefix \"locks/\""#),
            "{said}"
        );
        assert!(!said.contains(secret), "{said}");
        let url = format!("consul://{}/other?token={secret}", server.address());
        let client = leasehold::connect(&url).await.expect("connected");
        drop(client.mutex("x").lock().await.expect("free"));
        let url = format!("consul://:{ROOT_TOKEN}@{}/locks", server.address());
        let client = leasehold::connect(&url).await.expect("connected");
        drop(client.mutex("x").lock().await.expect("free"));
        assert!(!format!("{client:?}").contains(ROOT_TOKEN));
    }

    /// A server that cannot be reached is said to be so, and where.
    #[tokio::test]
    async fn a_server_that_is_not_there_is_an_error() {
        let port = leasehold_testkit::servers::free_port();
        let url = format!("consul://127.0.0.1:{port}");
        let error = ConnectOptions::new().lease(LEASE).connect(&url).await;
        let error = error.expect_err("no server listens");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }

    /// A name in use as one kind is refused as another, and free again afterwards.
    #[tokio::test]
    async fn another_kind_is_refused_with_what_is_there() {
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
        let permits = client.semaphore("kind", 300).acquire_many(200).await;
        let permits = permits.expect("free again");
        let refused = other.mutex("kind").lock().await.expect_err("a mutex");
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        let more = other.semaphore("kind", 300).try_acquire_many(101).await;
        assert!(more.expect("a try").is_none());
        let rest = other.semaphore("kind", 300).try_acquire_many(100).await;
        assert!(rest.expect("a try").is_some());
        drop(permits);
    }

    /// Clients that come and go fail no look of another.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_that_closes_fails_no_look() {
        let url = Url::parse(&one().url()).expect("a URL");
        let engine: std::sync::Arc<dyn leasehold::engine::Engine> =
            std::sync::Arc::new(Engine::from_url(&url).expect("an engine"));
        let come_and_go = engine.clone();
        let others = tokio::spawn(async move {
            for _ in 0..100 {
                let opened = ConnectOptions::new().open(come_and_go.clone()).await;
                let closed = opened.expect("opened").shutdown(LEASE).await;
                let _ = closed.expect("closed");
            }
        });
        let mut looks = 0;
        while !others.is_finished() || looks < 100 {
            let lines = engine.inspect(&Query::all()).await;
            let _ = lines.unwrap_or_else(|error| panic!("look {looks}: {error}"));
            looks += 1;
        }
        others.await.expect("no panic");
    }

    /// Names that an agent or a URL would take apart are names as others are.
    #[tokio::test]
    async fn every_name_is_a_name() {
        let client = leasehold::connect(&one().url()).await.expect("connected");
        let names = [".", "..", "a/b", "a//b", "a?b&c=d#e", "%2F", "á漢🔒", " "];
        let mut held = Vec::new();
        for name in names {
            held.push(client.mutex(name).lock().await.expect("free"));
        }
        let lines = client.inspect(&Query::all()).await.expect("inspected");
        for name in names {
            assert!(
                lines.iter().any(|line| line.name.as_str() == name),
                "{name:?}"
            );
        }
    }
}
