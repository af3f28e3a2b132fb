//! P26, P27: stripes, values behind fences, and stock in segments.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::cancel::{for_every_k, nothing_left, poll_times};
use super::{Subject, fresh_name};
use crate::client::Client;
use crate::error::ErrorKind;
use crate::fence::Fence;
use crate::name::Name;

/// P26: a key has the stripe that the documented hash gives it, stripes do not wait for each other, and `all` has them all.
pub async fn keys_have_their_stripe(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let (ours, theirs) = (a.striped(&name, 16), b.striped(&name, 16));
    let held = ours.for_key("foobar").lock().await.expect("free");
    assert_eq!(held.name().as_str(), format!("{name}#8"), "P26");
    let same = theirs.for_key("foobar").try_lock().await.expect("a try");
    assert!(same.is_none(), "P26: two hold the stripe of one key");
    let other = theirs.for_key("a").try_lock().await.expect("a try");
    let other = other.expect("P26: keys of two stripes wait for each other");
    let all = theirs.all().try_lock().await.expect("a try");
    assert!(all.is_none(), "P26: `all` without one stripe");
    let (held, other) = (held.release().await, other.release().await);
    let _ = (held.expect("released"), other.expect("released"));
    let all = s.soon("P26: all stripes", theirs.all().lock()).await;
    let all = all.expect("granted");
    assert_eq!(all.guards().len(), 16, "P26");
    let tried = ours.any().try_lock().await.expect("a try");
    assert!(tried.is_none(), "P26: a stripe beside `all`");
    let _ = all.release().await.expect("released");
    let (one, two) = (ours.any().lock().await, ours.any().lock().await);
    let (one, two) = (one.expect("free"), two.expect("free"));
    assert_ne!(one.name(), two.name(), "P26: `any` chose a stripe in use");
    drop((one, two));
    for stripes in [0, 1025] {
        let bad = a.striped(&name, stripes);
        for error in [
            bad.for_key("x").lock().await.expect_err("out of range"),
            bad.any().lock().await.expect_err("out of range"),
            bad.all().lock().await.expect_err("out of range"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "P26: {error}");
        }
    }
}

/// P27: a store refuses smaller fences than it was shown, also after the value has ended, and keeps a value as long as asked.
pub async fn a_store_refuses_late_writes(s: &Subject) {
    let (store, key) = (&*s.store, Name::new(fresh_name()).expect("a name"));
    let fences = [3, 5, 1 << 60].map(Fence::new);
    let [old, new, newest] = fences;
    assert_eq!(store.get(&key).await.expect("read"), None);
    let shown = store.show(&key, new).await.expect("shown");
    assert_eq!(shown, Ok(None), "P27: nothing there yet");
    let late = store.put(&key, old, Some(b"late"), None).await;
    let late = late.expect("answered").expect_err("P27: a late write");
    assert_eq!((late.shown, late.seen), (old, new), "P27");
    let bytes: Vec<u8> = (0..=255).collect();
    let put = store.put(&key, new, Some(&bytes), None).await;
    assert_eq!(put.expect("answered"), Ok(()));
    let entry = store.get(&key).await.expect("read").expect("P27: kept");
    assert_eq!((entry.value, entry.fence, entry.ends), (bytes, new, None));
    let shown = store.show(&key, newest).await.expect("shown");
    let shown = shown.expect("the latest").expect("P27: the value stays");
    assert_eq!(shown.fence, newest);
    // Larger than a double holds exactly, and one apart.
    let near = Fence::new(newest.get() - 1);
    let late = store.put(&key, near, Some(b"late"), None).await;
    assert!(
        late.expect("answered").is_err(),
        "P27: a fence one too small"
    );
    let keep = Some(Duration::from_millis(300));
    let put = store.put(&key, newest, Some(b"short"), keep).await;
    assert_eq!(put.expect("answered"), Ok(()));
    let entry = store.get(&key).await.expect("read");
    assert!(entry.is_none_or(|entry| entry.value == b"short" && entry.ends.is_some()));
    s.eventually("P27: the value ends", async || {
        match store.get(&key).await.expect("read") {
            None => Ok(()),
            Some(entry) => Err(format!("{entry:?}")),
        }
    })
    .await;
    let late = store.put(&key, new, Some(b"late"), None).await;
    assert!(
        late.expect("answered").is_err(),
        "P27: the fence was forgotten"
    );
    let put = store.put(&key, newest, Some(b"again"), None).await;
    assert_eq!(put.expect("answered"), Ok(()));
    let gone = store.put(&key, newest, None, None).await;
    assert_eq!(gone.expect("answered"), Ok(()));
    assert_eq!(store.get(&key).await.expect("read"), None, "P27: removed");
    let late = store.put(&key, near, Some(b"late"), None).await;
    assert!(
        late.expect("answered").is_err(),
        "P27: forgotten by a removal"
    );
}

/// P27: what two clients take from a stock and what is left add up to what was put in, and none is sold twice.
pub async fn stock_adds_up(s: &Subject) {
    const STOCK: u64 = 30;
    let ((a, b), name) = (s.two().await, fresh_name());
    a.stock(&name, 3).refill(STOCK).await.expect("refilled");
    let sold = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for buyer in 0..6 {
        let client = if buyer % 2 == 0 { &a } else { &b };
        let (stock, sold) = (client.stock(&name, 3), sold.clone());
        let count = if buyer == 0 { 2 } else { 1 };
        let _ = tasks.spawn(async move {
            while stock.take(count).await.expect("P27: taken or not") {
                let _ = sold.fetch_add(count, Ordering::Relaxed);
            }
        });
    }
    let _ = s.soon("P27: all buyers are served", tasks.join_all()).await;
    let left = b.stock(&name, 3).total().await.expect("counted");
    assert_eq!(
        (sold.load(Ordering::Relaxed), left),
        (STOCK, 0),
        "P27: sold and left do not add up to {STOCK}"
    );
    let stock = a.stock(&name, 3);
    stock.refill(5).await.expect("refilled");
    assert!(!stock.take(6).await.expect("asked"), "P27: below zero");
    assert!(
        stock.take(5).await.expect("asked"),
        "P27: from all segments"
    );
    assert_eq!(stock.total().await.expect("counted"), 0, "P27");
    for segment in 0..3 {
        s.idle(&format!("{name}#{segment}")).await;
    }
}

/// P9, P27: a take or a refill that is dropped at any await leaves no lock, and takes or adds no more than it was to.
pub async fn stock_at_every_await(s: &Subject) {
    let (a, b) = s.two().await;
    for_every_k(async |polls| {
        let name = fresh_name();
        let stock = a.stock(&name, 2);
        let refilled = poll_times(s, stock.refill(4), polls, ready(())).await;
        let had = left(s, &b, &name).await;
        assert!(had == 4 || refilled.is_none() && had < 4, "P27: {had} of 4");
        b.stock(&name, 2).refill(8 - had).await.expect("refilled");
        let mut all = refilled.is_some();
        // From one segment, and from both.
        for count in [1, 5] {
            let had = left(s, &b, &name).await;
            let taken = poll_times(s, stock.take(count), polls, ready(())).await;
            let gone = had - left(s, &b, &name).await;
            all &= taken.is_some();
            match taken {
                Some(taken) => assert!(taken.expect("asked") && gone == count, "P27: {gone}"),
                None => assert!(
                    gone <= count,
                    "P27: {gone} were taken, and asked for {count}"
                ),
            }
        }
        all
    })
    .await;
}

/// How many are left, once no lock of a dropped future is.
async fn left(s: &Subject, client: &Client, name: &str) -> u64 {
    for segment in 0..2 {
        nothing_left(s, client, &format!("{name}#{segment}")).await;
    }
    let total = client.stock(name, 2).total().await;
    total.expect("counted")
}
