//! The files in the directory, and damage by other programs.

use super::*;

#[tokio::test]
async fn leaves_no_file_behind() {
    let dir = temp();
    let a = client(dir.path()).await;
    for name in ["x", "../y", "z/".repeat(100).as_str()] {
        release(a.mutex(name).lock().await.unwrap()).await;
    }
    let _ = a.shutdown(Duration::from_secs(5)).await.unwrap();
    assert_eq!(files(&dir.path().join("lines")), Vec::<PathBuf>::new());
    assert_eq!(files(&dir.path().join("sessions")), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn removes_the_files_of_idle_names_while_it_lives() {
    let dir = temp();
    let a = client(dir.path()).await;
    let kept = a.mutex("kept").lock().await.unwrap();
    release(a.mutex("idle").lock().await.unwrap()).await;
    assert_eq!(files(&dir.path().join("lines")).len(), 2);
    until("one file", || match files(&dir.path().join("lines")) {
        left if left.len() == 1 => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
    assert!(kept.check().is_ok());
    let first = kept.fence();
    release(kept).await;
    assert!(a.mutex("kept").lock().await.unwrap().fence() > first);
}

#[tokio::test]
async fn only_this_user_can_read_its_files() {
    let dir = temp();
    let a = client(&dir.path().join("new")).await;
    let _held = a.mutex("x").lock().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in ["new", "new/lines", "new/sessions"] {
        let folder = dir.path().join(folder);
        assert_eq!(mode(&folder), 0o700, "{folder:?}");
        for file in files(&folder).into_iter().filter(|file| !file.is_dir()) {
            assert_eq!(mode(&file), 0o600, "{file:?}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_reported_and_left_alone() {
    let dir = temp();
    let a = client(dir.path()).await;
    release(a.mutex("x").lock().await.unwrap()).await;
    let path = files(&dir.path().join("lines")).remove(0);
    let whole = fs::read(&path).unwrap();
    for (bytes, hint) in [
        (b"#!/bin/sh\n".to_vec(), "not a lock's file"),
        (whole[..70].to_vec(), "damaged"),
    ] {
        fs::write(&path, &bytes).unwrap();
        let error = a.mutex("x").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(
            text.contains(hint) && text.contains(path.to_str().unwrap()),
            "{text}"
        );
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was changed");
    }
    // Another name's file, copied over.
    release(a.mutex("y").lock().await.unwrap()).await;
    let others = files(&dir.path().join("lines"));
    let other = others.iter().find(|other| **other != path).unwrap();
    let _ = fs::copy(other, &path).unwrap();
    let error = a.mutex("x").try_lock().await.unwrap_err().to_string();
    assert!(error.contains("belongs to the name \"y\""), "{error}");
}

#[tokio::test]
async fn keeps_few_files_open_however_many_names() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let (a, _) = session(&engine).await;
    let claims: Vec<_> = (0..1_000)
        .map(|n| Arc::new(claim(&format!("n{n}"))))
        .collect();
    for claim in &claims {
        let _ = a.claim(claim).await.unwrap();
    }
    let root = fs::canonicalize(dir.path()).unwrap();
    let open = files(Path::new("/proc/self/fd"))
        .into_iter()
        .filter_map(|fd| fs::read_link(fd).ok());
    let open = open.filter(|path| path.starts_with(&root)).count();
    assert!(open < 200, "{open} open files");
    let standings = beat(&*a, &claims).await;
    assert!(
        standings
            .iter()
            .all(|standing| matches!(standing, Standing::Held(_)))
    );
    a.close().await.unwrap();
    assert_eq!(files(&dir.path().join("lines")).len(), 0);
}

#[tokio::test]
async fn works_in_a_directory_with_a_long_path() {
    let dir = temp();
    let deep = dir.path().join("long/".repeat(30));
    let engine = File::new(&deep, Clock::boot()).unwrap();
    let ((a, _), (b, told)) = (session(&engine).await, session(&engine).await);
    let (held, waits) = (claim("x"), claim("x"));
    let _ = a.claim(&held).await.unwrap();
    let _ = b.claim(&waits).await.unwrap();
    let _ = a.release(&held, 1).await.unwrap();
    let _ = granted(&told, &waits).await;
}

#[tokio::test]
async fn a_session_that_was_never_closed_leaves_no_idle_file() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let ((a, _), claim) = (session(&engine).await, claim("x"));
    let _ = a.claim(&claim).await.unwrap();
    let _ = a.release(&claim, 1).await.unwrap();
    assert_eq!(files(&dir.path().join("lines")).len(), 1);
    drop(a);
    assert_eq!(files(&dir.path().join("lines")).len(), 0);
}

#[tokio::test]
async fn files_of_a_killed_process_are_cleared_away() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let (dead, _) = session(&engine).await;
    let _ = dead.claim(&claim("x")).await.unwrap();
    drop(dead);
    // A file is kept until the clock has passed its last fence: here, a block that was never given back.
    let clock = Clock::boot();
    let passed = clock.wall() + 1_000;
    until("the clock", || {
        (clock.wall() > passed)
            .then_some(())
            .ok_or_else(String::new)
    })
    .await;
    // A killed process also leaves these.
    let sessions = dir.path().join("sessions");
    fs::write(sessions.join("0123456789abcdef0123456789abcdef"), "").unwrap();
    fs::write(sessions.join("0123456789abcdef0123456789abcdef.sock"), "").unwrap();
    assert_eq!(files(&dir.path().join("lines")).len(), 1);
    let (a, _) = session(&engine).await;
    assert_eq!(files(&dir.path().join("lines")).len(), 0);
    assert_eq!(files(&sessions).len(), 2, "a file and a socket");
    drop(a);
    assert_eq!(files(&sessions).len(), 0);
}
