//! What a caller sees of one or two clients, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{Clock, Engine, Memory, Query};
use leasehold::{Client, ConnectOptions, GuardState, Released};
use tokio::time::{Instant, advance, timeout};

const SECOND: Duration = Duration::from_secs(1);

struct World {
    clock: Clock,
    engine: Memory,
}

impl World {
    fn new() -> Self {
        let clock = Clock::simulated();
        let engine = Memory::new(clock.clone());
        Self { clock, engine }
    }

    async fn client(&self) -> Client {
        let options = ConnectOptions::new().clock(self.clock.clone());
        let engine = Arc::new(self.engine.clone());
        options.open(engine).await.unwrap()
    }

    async fn holders(&self) -> usize {
        let lines = self.engine.inspect(&Query::all()).await.unwrap();
        lines.iter().map(|line| line.holders.len()).sum()
    }

    /// Lets what runs in the background run.
    async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_knows_its_lease_and_how_much_of_it_is_left() {
    let world = World::new();
    let client = world.client().await;
    let mutex = client.mutex("x").lease(10 * SECOND).keep_alive(false);
    let guard = mutex.lock().await.unwrap();
    assert_eq!(guard.lease(), 10 * SECOND);
    let left = guard.remaining();
    assert!(left > 9 * SECOND && left < 10 * SECOND, "{left:?}");
    advance(4 * SECOND).await;
    assert_eq!(guard.remaining(), left - 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_nothing_before_it_is_asked() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("x").lock().await.unwrap();
    assert!(timeout(SECOND, guard.release_requested()).await.is_err());
    assert_eq!(client.ask_to_release("x").await.unwrap(), 1);
    timeout(SECOND, guard.release_requested()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_names_are_lost_when_one_is() {
    let world = World::new();
    let client = world.client().await;
    let guards = client.multi(["a", "b"]).lock().await.unwrap();
    guards.check().unwrap();
    let _ = client.evict("b", "a test").await.unwrap();
    world.settle().await;
    assert!(guards.check().unwrap_err().is_lost());
    assert_eq!(guards.release().await.unwrap(), Released::WasLost);
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_says_why() {
    let world = World::new();
    let client = world.client().await;
    let mutex = client.mutex("x");
    let evict = async |_: &_| client.evict("x", "a test").await.is_ok();
    let failed = mutex.run(evict).await.unwrap_err();
    assert_eq!(failed.to_string(), failed.error.to_string());
    assert!(failed.error.is_lost(), "{failed}");
}

/// The guard is the last of its client: its grant would linger for a task that can never come.
#[tokio::test(start_paused = true)]
async fn what_is_released_after_the_last_client_does_not_linger() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("x").linger(100 * SECOND).lock().await.unwrap();
    drop(client);
    drop(guard);
    world.settle().await;
    assert_eq!(world.holders().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_shares_the_grant_of_a_writer_that_went_on_as_one() {
    let world = World::new();
    let client = world.client().await;
    let lock = client.rwlock("x");
    let writer = lock.write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    let other = lock.try_read().await.unwrap().expect("readers share");
    assert_eq!(world.holders().await, 1);
    assert_eq!(other.fence().get(), reader.fence().get() + 1);
}

/// Their leases differ, so each has a grant of its own.
#[tokio::test(start_paused = true)]
async fn a_try_to_read_beside_a_reader_on_other_terms_is_granted() {
    let world = World::new();
    let client = world.client().await;
    let first = client.rwlock("x").linger(50 * SECOND).read().await.unwrap();
    let other = client.rwlock("x").lease(5 * SECOND);
    let second = other.try_read().await.unwrap().expect("readers share");
    assert_eq!(world.holders().await, 2);
    drop(second);
    world.settle().await;
    // The first only lingers now, and is in no reader's way.
    drop(first);
    let second = other.try_read().await.unwrap().expect("readers share");
    assert_eq!(world.holders().await, 2);
    drop(second);
}

/// A turn at the same grant has the next fence; a new grant's fence would be of a later time.
#[tokio::test(start_paused = true)]
async fn a_try_takes_a_turn_at_what_lingers() {
    let world = World::new();
    let client = world.client().await;
    let mutex = client.mutex("x").linger(100 * SECOND);
    let first = mutex.lock().await.unwrap().fence().get();
    advance(SECOND).await;
    let second = mutex.try_lock().await.unwrap().expect("it only lingers");
    assert_eq!(second.fence().get(), first + 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_when_the_last_guard_goes() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("x").lock().await.unwrap();
    let start = Instant::now();
    let holder = async {
        guard.release_requested().await;
        tokio::time::sleep(SECOND).await;
        guard.release().await.unwrap()
    };
    let (left, released) = tokio::join!(client.shutdown(60 * SECOND), holder);
    assert_eq!((left.unwrap().abandoned, released), (0, Released::Released));
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
}

/// A name that was taken away in its minimum hold leaves nothing behind in the client either.
#[tokio::test(start_paused = true)]
async fn nothing_runs_on_after_the_last_client() {
    let world = World::new();
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let client = world.client().await;
    let mutex = client.mutex("x").min_hold(3600 * SECOND);
    drop(mutex.lock().await.unwrap());
    let _ = client.evict("x", "a test").await.unwrap();
    world.settle().await;
    drop((client, mutex));
    world.settle().await;
    assert_eq!(tasks.num_alive_tasks(), before);
}

/// A lease that is fixed ends a little earlier on the holder's clock than in the engine: the minimum counts in the engine.
#[tokio::test(start_paused = true)]
async fn a_minimum_as_long_as_its_fixed_lease_is_kept() {
    let world = World::new();
    let (one, two) = (world.client().await, world.client().await);
    let mutex = one
        .mutex("x")
        .lease(SECOND)
        .keep_alive(false)
        .min_hold(SECOND);
    let start = Instant::now();
    let guard = mutex.lock().await.unwrap();
    let _ = guard.lost().await;
    drop(guard);
    let _ = two.mutex("x").lock().await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= SECOND && waited < 2 * SECOND, "{waited:?}");
}

#[test]
fn a_guard_is_lost_with_the_runtime_that_renews_it() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let engine = Arc::new(Memory::new(Clock::boot()));
    let client = first.block_on(ConnectOptions::new().open(engine)).unwrap();
    let guard = first.block_on(client.mutex("x").lock()).unwrap();
    drop(first);
    let told = runtime().block_on(async { timeout(SECOND, guard.lost()).await });
    assert!(told.unwrap().is_lost());
    assert_eq!(guard.state(), GuardState::Lost);
}
