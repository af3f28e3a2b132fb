//! The locks of `consul lock`, with `layout=consul`: what changes between a look and a request.

use super::*;

async fn shared(url: &str) -> Client {
    let url = format!("{url}?layout=consul");
    let opened = ConnectOptions::new().lease(LONG).connect(&url).await;
    opened.expect("connected")
}

/// A semaphore is made between a waiter's look at the free key and its request for it: the request takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_and_a_semaphore_of_one_name_are_not_both_held() {
    let server = Consul::start();
    let door = Proxy::before(server.port());
    let late = shared(&format!("consul://127.0.0.1:{}", door.port)).await;
    let direct = shared(&server.url()).await;
    for round in 0..3 {
        let name = format!("both-{round}");
        let first = direct.mutex(&name).lock().await.expect("free");
        let next = waiter(&late, &name);
        line(&late, &name, 1, 1).await;
        door.after_words(&[b"PUT /v1/txn".to_vec()], Way::ToServer, 0, Fate::Hold);
        assert_eq!(first.release().await.expect("released"), Released::Released);
        until("the waiter's request is held back", async || {
            match door.is_armed() {
                false => Ok(()),
                true => Err("not sent".to_owned()),
            }
        })
        .await;
        let permit = direct.semaphore(&name, 2).acquire().await.expect("free");
        door.set_both(Fate::Pass);
        let refused = soon("an answer", next).await.expect("no panic");
        let refused = refused.expect_err("a semaphore of this name is held");
        let said = refused.to_string();
        assert!(said.contains("in use as a semaphore of 2"), "{said}");
        assert_eq!(permit.state(), GuardState::Valid);
        let given = permit.release().await.expect("released");
        assert_eq!(given, Released::Released, "the permit was overwritten");
    }
}
