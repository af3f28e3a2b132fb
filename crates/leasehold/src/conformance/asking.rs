//! Asking holders to give up.

use std::time::Duration;

use super::{Subject, fresh_name};
use crate::error::ErrorKind;
use crate::guard::Released;
use crate::session::GuardState;

/// Whether holders can be asked; an engine where they cannot says so.
async fn can(s: &Subject) -> bool {
    let asked = s.client().await.ask_to_release(fresh_name()).await;
    match &asked {
        Ok(count) => assert_eq!(*count, 0, "P25: no claim holds it"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "P25: {error}"),
    }
    asked.is_ok()
}

/// P25: a holder that is asked to give up is told, and holds until it does.
pub async fn a_holder_is_asked(s: &Subject) {
    if !can(s).await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    assert!(!held.is_release_requested(), "P25: no process asked");
    let other = crate::Fence::new(held.fence().get() + u64::from(crate::engine::FENCE_BLOCK));
    let asked = b.ask_fence_to_release(&name, other).await.expect("asked");
    assert_eq!(asked, 0, "P25: another fence");
    let asked = b.ask_fence_to_release(&name, held.fence()).await;
    assert_eq!(asked.expect("asked"), 1, "P25");
    s.soon("P25: the holder is told", held.release_requested())
        .await;
    assert!(
        held.is_release_requested() && held.state() != GuardState::Lost,
        "P25"
    );
    let tried = b.mutex(&name).try_lock().await.expect("a try");
    assert!(tried.is_none(), "P25: it holds until it gives up");
    let line = s.line(&name).await.expect("in use");
    assert!(line.holders[0].who.is_some(), "P20: {line:?}");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    let next = a.mutex(&name).lock().await.expect("free");
    assert!(!next.is_release_requested(), "P25: another grant");
}

/// P25: a lock that was asked for passes to no other task of the process, and does not linger.
pub async fn a_grant_asked_for_is_given_back(s: &Subject) {
    if !can(s).await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let mutex = a.mutex(&name).linger(Duration::from_secs(600));
    let _ = mutex.lock().await.expect("free").release().await;
    assert!(s.line(&name).await.is_some(), "it lingers");
    assert_eq!(b.ask_to_release(&name).await.expect("asked"), 1);
    s.idle(&name).await;
    let held = mutex.lock().await.expect("free");
    assert_eq!(b.ask_to_release(&name).await.expect("asked"), 1);
    s.soon("P25: the holder is told", held.release_requested())
        .await;
    let fence = held.fence();
    // Waits before it is released.
    let (next, _) = tokio::join!(mutex.lock(), held.release());
    let next = next.expect("granted");
    assert!(
        !next.is_release_requested() && next.fence() > fence,
        "P25: a new grant"
    );
}
