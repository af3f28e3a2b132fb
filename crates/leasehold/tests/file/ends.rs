//! Sessions that end, and directories that vanish.

use super::*;

#[tokio::test]
async fn a_directory_removed_underneath_is_a_loss_and_then_a_new_start() {
    let dir = temp();
    let path = dir.path().join("d");
    let url = format!("file:{}", path.display());
    let a = ConnectOptions::new()
        .lease(Duration::from_millis(900))
        .connect(&url)
        .await
        .unwrap();
    let held = a.mutex("x").lock().await.unwrap();
    fs::remove_dir_all(&path).unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(10), held.lost())
        .await
        .expect("told");
    assert_eq!(held.state(), GuardState::Lost);
    let b = client(&path).await;
    let again = a.mutex("x").lock().await.unwrap();
    assert!(
        b.mutex("x").try_lock().await.unwrap().is_none(),
        "the session lives in the new directory"
    );
    release(again).await;
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_claim_right_after_the_directory_was_removed_excludes() {
    let dir = temp();
    let path = dir.path().join("d");
    let a = client(&path).await;
    release(a.mutex("x").lock().await.unwrap()).await;
    fs::remove_dir_all(&path).unwrap();
    let b = client(&path).await;
    let _held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_whose_directory_was_removed_is_down_and_begins_anew() {
    let dir = temp();
    let engine = File::new(dir.path().join("d"), Clock::boot()).unwrap();
    let ((a, told), (b, _)) = (session(&engine).await, session(&engine).await);
    for gone in ["d", "d/sessions"] {
        let (held, other) = (Arc::new(claim("x")), claim("x"));
        assert!(matches!(a.claim(&held).await.unwrap(), Standing::Held(_)));
        fs::remove_dir_all(dir.path().join(gone)).unwrap();
        assert_eq!(beat(&*a, &[held]).await, [Standing::Gone], "{gone}");
        let down = told.lock().unwrap().pop();
        assert!(matches!(down, Some(Event::Down(_))), "{down:?}");
        assert_eq!(beat(&*b, &[]).await, []);
        assert!(matches!(a.claim(&other).await.unwrap(), Standing::Held(_)));
        assert_eq!(b.claim(&claim("x").tries()).await.unwrap(), Standing::Busy);
        assert_eq!(a.release(&other, 1).await.unwrap(), Release::Released);
    }
    // Without the lines only the claims are gone.
    let held = Arc::new(claim("x"));
    let _ = a.claim(&held).await.unwrap();
    fs::remove_dir_all(dir.path().join("d/lines")).unwrap();
    assert_eq!(beat(&*a, &[held]).await, [Standing::Gone]);
    assert!(matches!(
        a.claim(&claim("x")).await.unwrap(),
        Standing::Held(_)
    ));
}

#[tokio::test]
async fn a_dead_session_is_noticed_at_once_by_tries_and_by_waiters() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let (dead, _) = session(&engine).await;
    let (next, told) = session(&engine).await;
    let (last, told_last) = session(&engine).await;
    let (held, waits, waits_too) = (claim("x"), claim("x"), claim("x"));
    assert!(matches!(
        dead.claim(&held).await.unwrap(),
        Standing::Held(_)
    ));
    assert!(matches!(
        next.claim(&waits).await.unwrap(),
        Standing::Waiting { ahead: 1, .. }
    ));
    assert!(matches!(
        last.claim(&waits_too).await.unwrap(),
        Standing::Waiting { ahead: 2, .. }
    ));
    assert!(matches!(
        dead.claim(&claim("y")).await.unwrap(),
        Standing::Held(_)
    ));
    assert_eq!(
        last.claim(&claim("y").tries()).await.unwrap(),
        Standing::Busy
    );
    drop(dead); // as a killed process: nothing is released
    assert!(matches!(
        last.claim(&claim("y").tries()).await.unwrap(),
        Standing::Held(_)
    ));
    let _ = granted(&told, &waits).await;
    drop(next);
    let _ = granted(&told_last, &waits_too).await;
}

#[tokio::test]
async fn a_grant_skips_dead_waiters() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let (holder, _) = session(&engine).await;
    let (dead, _) = session(&engine).await;
    let (last, told) = session(&engine).await;
    let (held, waits) = (claim("x"), claim("x"));
    let _ = holder.claim(&held).await.unwrap();
    let _ = dead.claim(&claim("x")).await.unwrap();
    let _ = last.claim(&waits).await.unwrap();
    drop(dead);
    assert_eq!(holder.release(&held, 1).await.unwrap(), Release::Released);
    // Before a watcher had a chance to run.
    let lines = engine.inspect(&Query::all()).await.unwrap();
    assert_eq!((lines[0].holders.len(), lines[0].waiters.len()), (1, 0));
    let _ = granted(&told, &waits).await;
}
