//! `fence_floor` on the engines whose fences are the server's numbers: guards, `inspect` and `evict` name the same fence.

use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, ErrorKind, Fence, Name};
use leasehold_testkit::servers::consul::Consul;
use leasehold_testkit::servers::etcd::Etcd;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

/// A fence of Redis or a file.
const FLOOR: u64 = 1_794_985_059_371_655;

/// A client with the floor, and one without.
struct Two {
    floored: Client,
    bare: Client,
}

impl Two {
    async fn connect(url: &str) -> Self {
        let with = if url.contains('?') { '&' } else { '?' };
        let floored = leasehold::connect(&format!("{url}{with}fence_floor={FLOOR}")).await;
        let bare = leasehold::connect(url).await;
        Self {
            floored: floored.expect("connected"),
            bare: bare.expect("connected"),
        }
    }

    /// A holder's fence, as `inspect` shows it with the floor; without, the same number has a fence that is smaller by it.
    async fn shown(&self, name: &str) -> Fence {
        let floored = fence_of(&self.floored, name).await;
        let bare = fence_of(&self.bare, name).await;
        assert_eq!(floored.get(), FLOOR + bare.get(), "{name}");
        let below = self.floored.evict_fence(name, bare, "below the floor");
        assert_eq!(below.await.expect("an answer"), 0, "{name}");
        floored
    }

    /// Evicts the holder of this fence, and no other.
    async fn evict(&self, name: &str, fence: Fence) {
        let next = Fence::new(fence.get() + 256);
        let other = self.floored.evict_fence(name, next, "another fence");
        assert_eq!(other.await.expect("an answer"), 0, "{name}");
        let evicted = self.floored.evict_fence(name, fence, "it hangs");
        assert_eq!(evicted.await.expect("evicted"), 1, "{name}");
    }
}

async fn fence_of(client: &Client, name: &str) -> Fence {
    let query = Query::name(Name::new(name).expect("a name"));
    let lines = client.inspect(&query).await.expect("inspected");
    let holder = lines.first().and_then(|line| line.holders.first());
    let fence = holder.and_then(|holder| holder.fence);
    fence.unwrap_or_else(|| panic!("{name}: no holder in {lines:?}"))
}

/// The holder is told by whom and why: the trace of an eviction names its node.
async fn told(guard: &leasehold::Guard) {
    let told = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
    let why = told.expect("the loss is told").to_string();
    assert!(why.contains("it hangs"), "{why}");
}

async fn a_mutex(two: &Two) {
    let mutex = two.floored.mutex("mutex");
    let first = mutex.lock().await.expect("free");
    assert!(first.fence().get() > FLOOR, "{first:?}");
    assert_eq!(two.shown("mutex").await, first.fence());
    // The next turn may be one of the same grant, and its fence is not the first of the block.
    let mut next = Box::pin(mutex.lock());
    let waits = tokio::time::timeout(Duration::ZERO, &mut next).await;
    assert!(waits.is_err(), "held");
    let _ = first.release().await.expect("released");
    let next = next.await.expect("granted");
    two.evict("mutex", next.fence()).await;
    told(&next).await;
}

async fn permits(two: &Two, count: u32) {
    let held = two
        .floored
        .semaphore("permits", 3)
        .acquire_many(count)
        .await;
    let held = held.expect("free");
    assert_eq!(two.shown("permits").await, held.fence());
    two.evict("permits", held.fence()).await;
    told(&held).await;
}

/// The reader's node says the number of the writer that it was.
async fn a_downgrade(two: &Two) {
    let writer = two.floored.rwlock("rw").write().await.expect("free");
    let fence = writer.fence();
    let reader = writer.downgrade().await.expect("a reader");
    assert_eq!(reader.fence(), fence);
    assert_eq!(two.shown("rw").await, fence);
    two.evict("rw", fence).await;
    told(&reader).await;
}

/// A floor that leaves no fence is refused, and the name is free afterwards.
async fn no_fence_is_left(url: &str, two: &Two) {
    let with = if url.contains('?') { '&' } else { '?' };
    let high = format!("{url}{with}fence_floor={}", i64::MAX);
    let high = leasehold::connect(&high).await.expect("connected");
    let refused = high.mutex("high").lock().await.expect_err("no fence");
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("no fence is left below 2^63"), "{said}");
    let mutex = two.bare.mutex("high");
    let free = mutex.lock_within(Duration::from_secs(20)).await;
    assert!(free.expect("an answer").is_some(), "still held");
}

#[tokio::test]
async fn guards_and_inspect_and_evict_agree_on_zookeeper() {
    let server = ZooKeeper::start();
    let two = Two::connect(&server.url()).await;
    a_mutex(&two).await;
    permits(&two, 2).await;
    a_downgrade(&two).await;
    no_fence_is_left(&server.url(), &two).await;
}

#[tokio::test]
async fn guards_and_inspect_and_evict_agree_on_etcd() {
    let server = Etcd::start();
    let two = Two::connect(&server.url()).await;
    a_mutex(&two).await;
    permits(&two, 2).await;
    a_downgrade(&two).await;
    no_fence_is_left(&server.url(), &two).await;
}

#[tokio::test]
async fn guards_and_inspect_and_evict_agree_on_consul() {
    let server = Consul::start();
    let two = Two::connect(&server.url()).await;
    a_mutex(&two).await;
    permits(&two, 2).await;
    a_downgrade(&two).await;
    no_fence_is_left(&server.url(), &two).await;
}

#[tokio::test]
async fn guards_and_inspect_and_evict_agree_in_the_layout_of_consul() {
    let server = Consul::start();
    let url = format!("{}?layout=consul", server.url());
    let two = Two::connect(&url).await;
    a_mutex(&two).await;
    // Each permit is a session there, and an eviction counts those.
    permits(&two, 1).await;
    no_fence_is_left(&url, &two).await;
}
