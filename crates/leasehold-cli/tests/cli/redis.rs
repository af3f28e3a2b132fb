//! On Redis, where Redisson's locks have no fences of their own.

use leasehold_testkit::servers::redis::Redis;

use std::time::Duration;

use crate::common::{Place, Running, timed};

#[test]
fn a_run_beside_redisson_has_a_growing_fence_and_names_its_source() {
    let (place, server) = (Place::new(), Redis::start());
    for (lock, whose) in [("plain", "ours, kept beside"), ("fenced", "the token of")] {
        let url = format!("{}?layout=redisson&lock={lock}", server.url());
        let mut last = 0;
        for _ in 0..3 {
            let args = ["--url", &url, "--verbose", "run", "x", "--"];
            let script = ["sh", "-c", "echo $LEASEHOLD_FENCE"];
            let args = [&args[..], &script[..]].concat();
            let answer = Running::start(&mut place.command(&args)).end();
            assert_eq!(answer.code, 0, "{answer:?}");
            let fence: u64 = answer.out.trim().parse().unwrap();
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            let said = format!("holding x with fence {fence}: {whose}");
            assert!(answer.err.contains(&said), "{answer:?}");
        }
        // As a Java thread that takes the lock and gives it back: it has no fence.
        let _ = server.cli("HSET x 00000000-0000-4000-8000-000000000000:1 1");
        let _ = server.cli("DEL x");
    }
}

#[test]
fn waiting_covers_a_server_that_is_not_up_yet() {
    let (place, mut server) = (Place::new(), Redis::start());
    let url = server.url();
    server.kill();
    let args = |wait| ["--url", &url, "run", "x", "--wait", wait, "--", "true"];
    let (answer, took) = timed(|| Running::start(&mut place.command(&args("700ms"))).end());
    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(took > Duration::from_millis(450), "asked again: {took:?}");
    // The server takes longer to come up than the first refusal takes.
    let waits = Running::start(&mut place.command(&args("1m")));
    server.restart();
    let answer = waits.end();
    assert_eq!(answer.code, 0, "{answer:?}");
}

#[test]
fn a_wait_without_an_answer_is_not_busy() {
    let (place, server) = (Place::new(), Redis::start());
    let url = server.url();
    // Connections are made and looks are answered; nothing is written.
    let _ = server.cli("CLIENT PAUSE 100000 WRITE");
    for more in [&[][..], &["--shared"], &["--permits", "1", "--of", "2"]] {
        let args = [
            &["--url", &url, "run", "x", "--wait", "300ms"],
            more,
            &["--", "true"],
        ];
        let answer = Running::start(&mut place.command(&args.concat())).end();
        assert_eq!(answer.code, 69, "{answer:?}");
    }
}
