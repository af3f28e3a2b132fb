//! Locks of several clients on one directory.

use super::*;

#[tokio::test]
async fn excludes_and_hands_over_at_once_with_growing_fences() {
    let dir = temp();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(
        b.mutex("X").try_lock().await.unwrap().is_some(),
        "case matters"
    );
    let first = held.fence();
    let mut tasks = tokio::task::JoinSet::new();
    let _ = tasks.spawn(async move { b.mutex("x").lock().await.unwrap().fence() });
    let query = Query::name(Name::new("x").unwrap());
    loop {
        let lines = a.inspect(&query).await.unwrap();
        if lines[0].waiters.len() == 1 {
            assert_eq!(lines[0].holders[0].fence, Some(first));
            assert_eq!(
                lines[0].waiters[0].who.as_ref().unwrap().pid,
                std::process::id()
            );
            break;
        }
        tokio::task::yield_now().await;
    }
    release(held).await;
    let second = tokio::time::timeout(Duration::from_secs(10), tasks.join_next())
        .await
        .expect("pushed, not polled");
    assert!(second.unwrap().unwrap() > first);
}

#[tokio::test]
async fn two_engines_on_one_directory_say_so() {
    let dir = temp();
    fs::create_dir(dir.path().join("d")).unwrap();
    let url = |path: &str| format!("file:{}/{path}", dir.path().display());
    let a = leasehold::connect(&url("d/")).await.unwrap();
    let b = leasehold::connect(&url("./d/../d")).await.unwrap();
    assert_eq!(a.location(), b.location());
    assert_eq!(
        a.location(),
        format!(
            "file:{}",
            fs::canonicalize(dir.path().join("d")).unwrap().display()
        )
    );
}

#[tokio::test]
async fn an_eviction_is_told_and_leaves_a_trace() {
    let dir = temp();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let held = a.mutex("x").lock().await.unwrap();
    assert_eq!(b.evict("x", "the job\nhangs").await.unwrap(), 1);
    let _ = tokio::time::timeout(Duration::from_secs(10), held.lost())
        .await
        .expect("told");
    let why = held.check().unwrap_err().to_string();
    assert!(why.contains("hangs"), "{why}");
    let trace = fs::read_to_string(dir.path().join("evicted.log")).unwrap();
    assert_eq!(trace.lines().count(), 1, "{trace}");
    assert!(
        trace.contains("\"x\"") && trace.contains(&held.fence().to_string()),
        "{trace}"
    );
    assert_eq!(b.evict("x", "again").await.unwrap(), 0);
    assert_eq!(b.evict("never", "again").await.unwrap(), 0);
}

/// The kernel queues ten datagrams per socket: a burst of grants must not wait for heartbeats.
#[tokio::test]
async fn a_burst_of_grants_arrives() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let ((a, _), (b, told)) = (session(&engine).await, session(&engine).await);
    let names: Vec<_> = (0..200).map(|n| format!("n{n}")).collect();
    let held: Vec<_> = names.iter().map(|name| claim(name)).collect();
    let waits: Vec<_> = names.iter().map(|name| claim(name)).collect();
    for (held, waits) in held.iter().zip(&waits) {
        let _ = a.claim(held).await.unwrap();
        let _ = b.claim(waits).await.unwrap();
    }
    for held in &held {
        let _ = a.release(held, 1).await.unwrap();
    }
    for waits in &waits {
        let _ = granted(&told, waits).await;
    }
}

#[tokio::test]
async fn garbage_in_the_socket_is_ignored() {
    let dir = temp();
    let engine = File::new(dir.path(), Clock::boot()).unwrap();
    let ((a, _), (b, told)) = (session(&engine).await, session(&engine).await);
    let stranger = std::os::unix::net::UnixDatagram::unbound().unwrap();
    for socket in files(&dir.path().join("sessions")) {
        if socket.extension().is_some_and(|end| end == "sock") {
            for garbage in [&b""[..], b"hello", b"LH\x01", b"LH\x02\x01", &[0xff; 1000]] {
                let _ = stranger.send_to(garbage, &socket).unwrap();
            }
        }
    }
    let (held, waits) = (claim("x"), claim("x"));
    let _ = a.claim(&held).await.unwrap();
    let _ = b.claim(&waits).await.unwrap();
    let _ = a.release(&held, 1).await.unwrap();
    let _ = granted(&told, &waits).await;
    assert!(
        told.lock()
            .unwrap()
            .iter()
            .all(|event| !matches!(event, Event::Ended(_, Ended::Down(_))))
    );
}

/// Two machines' worth of wall clock on one directory: the second is an hour behind, as after a step back.
#[tokio::test]
async fn fences_grow_though_the_file_is_gone_and_the_wall_clock_went_back() {
    let dir = temp();
    let (before, after) = (Clock::simulated(), Clock::simulated());
    before.skip(Duration::from_secs(3_600));
    let mut fences = Vec::new();
    for clock in [before, after] {
        let engine = File::new(dir.path(), clock).unwrap();
        let ((a, _), claim) = (session(&engine).await, claim("x"));
        let Standing::Held(held) = a.claim(&claim).await.unwrap() else {
            panic!("not held");
        };
        fences.push(held.fence);
        let _ = a.release(&claim, 1).await.unwrap();
        a.close().await.unwrap();
        if fences.len() == 1 {
            assert_eq!(files(&dir.path().join("lines")).len(), 0);
        }
    }
    assert!(fences[1] > fences[0], "{fences:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_clients_never_meet_and_their_fences_only_grow() {
    let dir = temp();
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, fences) = (client(dir.path()).await, fences.clone());
        let _ = tasks.spawn(async move {
            for _ in 0..50 {
                let guard = client.mutex("hot").lock().await.unwrap();
                fences.try_lock().expect("alone").push(guard.fence());
                release(guard).await;
            }
            let _ = client.shutdown(Duration::from_secs(5)).await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), 400);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(files(&dir.path().join("lines")), Vec::<PathBuf>::new());
    assert_eq!(files(&dir.path().join("sessions")), Vec::<PathBuf>::new());
}
