//! The executable contract: one list of checks, the same for every engine.
//!
//! Each check is an async function over a [`Subject`] and cites the numbered promises of `docs/promises.md`. An engine
//! passes if none of them panics. Where an engine does not promise [`shared`](crate::engine::Guarantees::shared) or
//! [`ordered`](crate::engine::Guarantees::ordered), a check expects that:
//! the operation must be refused, and waiters must be served in some order.
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use leasehold::{conformance::{Subject, exclusion}, engine::{Clock, Memory}};
//!
//! let subject = Subject::new(Memory::new(Clock::boot()));
//! exclusion::one_holder_at_a_time(&subject).await;
//! # }
//! ```

pub mod asking;
#[cfg(feature = "cached")]
pub mod cached;
pub mod cancel;
pub mod election;
pub mod ends;
pub mod exclusion;
pub mod fences;
pub mod isolation;
pub mod kinds;
pub mod meeting;
pub mod once;
pub mod order;
pub mod raw;
pub mod reentrant;
pub mod striped;
pub mod turns;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::Client;
use crate::engine::{Clock, Engine, LineView, Query};
use crate::error::ErrorKind;
use crate::guard::Guard;
use crate::name::Name;
use crate::options::ConnectOptions;
use crate::store::{MemoryStore, Store};

/// How many times as long as [`Subject::lease`] the leases of checks are that do not wait for one to end.
const STEADY: u32 = 6;

/// An engine under test.
#[derive(Debug, Clone)]
pub struct Subject {
    engine: Arc<dyn Engine>,
    /// The lease of checks that wait for one to end.
    pub lease: Duration,
    /// How long anything may take before the check gives up and says what it last saw.
    pub patience: Duration,
    /// The values of kinds that remember something.
    pub store: Arc<dyn Store>,
    /// How one name is made unusable, for [`isolation`].
    pub spoil: Option<isolation::Spoil>,
}

impl Subject {
    /// An engine, with a short lease of half a second.
    pub fn new(engine: impl Engine) -> Self {
        Self {
            engine: Arc::new(engine),
            lease: Duration::from_millis(500),
            patience: Duration::from_secs(20),
            store: Arc::new(MemoryStore::new(Clock::boot())),
            spoil: None,
        }
    }

    /// With this store instead of one in memory.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// A new client with a session of its own.
    pub async fn client(&self) -> Client {
        self.client_with(ConnectOptions::new()).await
    }

    /// A new client with these options.
    pub async fn client_with(&self, options: ConnectOptions) -> Client {
        // A busy machine keeps a process from its renewals for longer than a short lease: that is for checks of its end.
        let lease = self.lease * STEADY;
        let options = options.lease(lease).store(self.store.clone());
        let opened = options.open(self.engine.clone()).await;
        opened.expect("a session opens")
    }

    /// Two clients, each with a session of its own.
    pub async fn two(&self) -> (Client, Client) {
        (self.client().await, self.client().await)
    }

    /// Whether readers and permits are to be checked. An engine that says it has none must refuse them, at once and
    /// without a trace.
    pub async fn shares(&self) -> bool {
        if self.engine.guarantees().shared {
            return true;
        }
        let (client, name) = (self.client().await, fresh_name());
        for refused in [
            client.rwlock(&name).read().await,
            client
                .rwlock(&name)
                .try_read()
                .await
                .map(|_| panic!("tried")),
            client.semaphore(&name, 3).acquire().await,
        ] {
            let error = refused.expect_err("an engine of mutexes alone");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        assert!(
            self.line(&name).await.is_none(),
            "a refused claim is in line"
        );
        false
    }

    /// Whether readers and writers are to be checked. An engine that says it has none must refuse them.
    pub async fn reads(&self) -> bool {
        let shares = self.shares().await;
        if !shares || self.engine.guarantees().readers {
            return shares;
        }
        let (client, name) = (self.client().await, fresh_name());
        let lock = client.rwlock(&name);
        let refused = [
            lock.read().await.expect_err("an engine without readers"),
            lock.write().await.expect_err("an engine without writers"),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        assert!(self.line(&name).await.is_none(), "it is in line");
        false
    }

    /// The order of service; sorted if the engine promises no order.
    pub fn in_order(&self, served: &Mutex<Vec<usize>>) -> Vec<usize> {
        let mut served = served.lock().expect("no panic").clone();
        if !self.engine.guarantees().ordered {
            served.sort_unstable();
        }
        served
    }

    /// The line of a name as it is now; none if it is idle.
    pub async fn line(&self, name: &str) -> Option<LineView> {
        let query = Query::name(Name::new(name).expect("a name"));
        let lines = self.engine.inspect(&query).await.expect("inspect works");
        lines.into_iter().next()
    }

    /// Waits until no claim holds or waits for a name (P22).
    pub async fn idle(&self, name: &str) {
        self.eventually("P22: the line is idle", async || {
            match self.line(name).await {
                None => Ok(()),
                Some(line) => Err(format!("{line:?}")),
            }
        })
        .await;
    }

    /// Waits until so many claims wait for a name.
    pub async fn waiting(&self, name: &str, count: usize) {
        self.eventually("claims wait", async || {
            let line = self.line(name).await;
            match line.as_ref().map_or(0, |line| line.waiters.len()) {
                waiters if waiters == count => Ok(()),
                _ => Err(format!("{count} wanted, {line:?}")),
            }
        })
        .await;
    }

    /// Until a holder has heard that another session waits: until then it may pass its grant along as it likes.
    pub(crate) async fn heard(&self, holder: &Guard) {
        self.eventually("the holder hears that it is wanted", async || match holder
            .turn()
            .grant()
            .is_wanted()
        {
            true => Ok(()),
            false => Err(format!("{holder:?} has heard nothing")),
        })
        .await;
    }

    /// Asks until the answer is yes; after [`patience`](Self::patience) it panics with the last answer.
    pub async fn eventually<T>(
        &self,
        what: &str,
        mut ask: impl AsyncFnMut() -> Result<T, String>,
    ) -> T {
        let clock = Clock::boot();
        let end = clock.now() + u64::try_from(self.patience.as_micros()).unwrap_or(u64::MAX);
        loop {
            let last = match ask().await {
                Ok(yes) => return yes,
                Err(last) => last,
            };
            assert!(
                clock.now() < end,
                "{what}: not within {:?}; last seen: {last}",
                self.patience
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits for a future, at most [`patience`](Self::patience).
    pub async fn soon<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        match tokio::time::timeout(self.patience, future).await {
            Ok(done) => done,
            Err(_) => panic!("{what}: not within {:?}", self.patience),
        }
    }
}

/// A name that no other test uses.
pub fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(
        "check:{}:{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// The checks of the feature `cached`, where the library has it.
#[cfg(feature = "cached")]
#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of_cached {
    ($subject:expr) => {
        $crate::conformance_tests! { @each $subject;
            cached: one_of_many_misses_loads, failures_are_not_kept_and_values_end, the_old_value_is_told_while_one_reloads,
                values_are_reloaded_early_and_forgotten, a_late_loader_writes_nothing, a_miss_at_every_await, the_longest_time_is_kept,
                a_wrong_wall_clock_reloads_nothing;
        }
    };
}

/// The checks of the feature `cached`, where the library has it.
#[cfg(not(feature = "cached"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of_cached {
    ($subject:expr) => {};
}

/// Makes a `#[tokio::test]` of every check, for the engine that an async expression makes.
///
/// ```
/// use leasehold::conformance::Subject;
/// use leasehold::engine::{Clock, Memory};
///
/// leasehold::conformance_tests!(Subject::new(Memory::new(Clock::boot())));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::conformance_tests! { @each $subject;
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
            striped: keys_have_their_stripe, a_store_refuses_late_writes, stock_adds_up, stock_at_every_await;
            election: one_leader_at_a_time, a_leader_that_lost_campaigns_again, a_campaign_ends_for_good, a_leader_shows_its_value,
                a_loss_is_told_before_another_leads, a_lead_at_every_await;
            once: one_of_many_requests_does_the_work, a_failed_run_is_not_done, requests_meanwhile_and_late_notes,
                a_duplicate_costs_one_round_trip, the_longest_time_is_kept, a_request_at_every_await;
            meeting: a_latch_opens_for_all_who_wait, a_latch_at_every_await, all_arrive_and_all_go, a_member_that_gives_up_breaks_it,
                a_dead_member_breaks_it, an_arrival_at_every_await;
            turns: grants_pass_from_task_to_task, turns_are_bounded_while_others_wait, turns_are_bounded_in_time,
                readers_share_one_claim, shared_reads_are_bounded, linger_is_given_up_when_wanted, linger_is_reused;
            cancel: lock_at_every_await, lock_that_is_never_polled_again, lock_while_waiting, lock_when_granted, try_lock_at_every_await,
                local_waiters, rwlock_and_semaphore, multi, release_at_every_await, downgrade_at_every_await,
                lock_within_races_the_grant;
            raw: operations_are_idempotent, release_counts_once, a_try_answers_busy, heartbeat_answers_each,
                inspect_shows_holders_and_waiters, inspect_shows_since_when_a_claim_holds, dropped_claim_then_release_leaves_nothing;
        }
        $crate::__tests_of_cached! { $subject }
    };
    (@each $subject:expr; $($module:ident: $($check:ident),+ $(,)?;)+) => {
        $(mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let subject = { use super::*; $subject };
                    $crate::conformance::$module::$check(&subject).await;
                }
            )+
        })+
    };
}
