//! The contract in Redisson's layout, for each kind of lock. Left out is what the layout cannot say: the waiters of
//! another process (so nothing lingers), writers and heavy claims before later ones, and a semaphore's name
//! that is free for another use once it is idle.

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Redisson as Engine, Url};
use leasehold_testkit::servers::redis::{Redis, Sentinels};

fn engine(options: &str) -> Engine {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    let server = SERVER.get_or_init(Redis::start);
    engine_at(&format!("{}?layout=redisson{options}", server.url()))
}

fn engine_at(url: &str) -> Engine {
    let url = Url::parse(url).expect("a URL");
    Engine::from_url(&url).expect("an engine")
}

macro_rules! redisson_tests {
    ($subject:expr) => {
        leasehold::conformance_tests! { @each $subject;
            exclusion: one_holder_at_a_time, readers_together_writers_alone, permits_never_exceed,
                names_never_collide, tasks_of_two_clients_count_exactly;
            order: first_come_first_served, a_try_never_joins, strict_tasks_go_in_order_across_sessions;
            fences: grow_over_turns_and_grants, grow_over_idle_times, survive_many_quick_grants;
            ends: release_hands_over_at_once, eviction_is_told, a_silent_session_loses_its_claims,
                closing_frees_at_once, dropped_guards_are_given_back, drop_works_without_a_runtime,
                renewal_outlives_the_lease, a_fixed_lease_ends, shutdown_drains, shutdown_tells_waiters;
            reentrant: reentrant_by_task, join_branches_are_one_task, reentrant_by_owner, reentrant_read_write;
            kinds: downgrade_lets_readers_in, multi_is_all_or_none, multi_never_deadlocks, run_ends_when_lost,
                min_hold_keeps_others_out, permits_out_of_range_are_refused, lock_within_gives_up;
            cancel: lock_at_every_await, lock_while_waiting, lock_when_granted, try_lock_at_every_await,
                local_waiters, multi, release_at_every_await, downgrade_at_every_await,
                lock_within_races_the_grant;
            raw: operations_are_idempotent, release_counts_once, a_try_answers_busy, heartbeat_answers_each,
                inspect_shows_holders_and_waiters, dropped_claim_then_release_leaves_nothing;
        }
    };
}

mod plain {
    use super::*;
    redisson_tests!(Subject::new(engine("")));

    mod with_turns {
        use super::*;
        leasehold::conformance_tests! { @each Subject::new(engine(""));
            turns: grants_pass_from_task_to_task, turns_are_bounded_while_others_wait, readers_share_one_claim;
        }
    }
}

mod fair_and_plain_semaphore {
    use super::*;
    redisson_tests!(Subject::new(engine("&lock=fair&semaphore=plain")));

    mod with_turns {
        use super::*;
        leasehold::conformance_tests! { @each Subject::new(engine("&lock=fair"));
            turns: grants_pass_from_task_to_task, turns_are_bounded_while_others_wait;
        }
    }
}

// A grant has one token of Redisson's, so it serves one turn.
mod fenced {
    use super::*;
    redisson_tests!(Subject::new(engine("&lock=fenced")));
}

mod sentinel {
    use super::*;

    fn servers() -> &'static Sentinels {
        static SERVERS: OnceLock<Sentinels> = OnceLock::new();
        SERVERS.get_or_init(Sentinels::steady)
    }

    redisson_tests!(Subject::new(engine_at(&format!(
        "{}?layout=redisson",
        servers().url()
    ))));
}

/// Redisson's keys are spread over a cluster's slots by rules of their own, which ours do not follow.
#[test]
fn a_cluster_is_refused() {
    let url = Url::parse("redis+cluster://127.0.0.1:1?layout=redisson").expect("a URL");
    let refused = Engine::from_url(&url).expect_err("not for a cluster");
    assert!(
        refused.to_string().contains("not for a Cluster"),
        "{refused}"
    );
}

/// Redisson's channels are joined and left all the time, on the connection that there is.
#[tokio::test]
async fn a_server_that_cannot_push_is_refused() {
    let server = Redis::with("--save  --rename-command HELLO NO-HELLO");
    let url = format!("{}?layout=redisson", server.url());
    let refused = leasehold::connect(&url).await.expect_err("it cannot push");
    assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("RESP3"), "{refused}");
}
