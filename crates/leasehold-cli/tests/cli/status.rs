//! The output of `status`.

use crate::common::{Place, until};
use rustix::process::Signal;

#[test]
fn nothing_is_locked() {
    let place = Place::new();
    assert_eq!(place.leasehold(&["status"]).out, "nothing is locked\n");
    let free = place.leasehold(&["status", "x"]);
    assert_eq!((free.code, free.out.as_str()), (1, "x is free\n"));
    let free = place.leasehold(&["status", "x", "--json"]);
    assert_eq!((free.code, free.out.as_str()), (1, "[]\n"));
}

#[test]
fn json_has_holders_and_waiters_with_times() {
    let place = Place::new();
    let holder = place.hold("x", &["--lease", "1m"], "sleep 1000");
    let waiter = place.start(&["run", "x", "--lease", "1m", "--", "echo", "next"]);
    place.wait_for_counts("x", (1, 1));
    let lines = place.status();
    let line = &lines[0];
    assert_eq!(line["name"], "x");
    let (held, waits) = (&line["holders"][0], &line["waiters"][0]);
    assert!(
        held["fence"].as_u64().is_some_and(|fence| fence > 0),
        "{held}"
    );
    assert_eq!(held["mode"], "mutex");
    assert_eq!(held["pid"], holder.pid().as_raw_nonzero().get());
    assert_eq!(held["command"], "sh");
    assert!(!held["host"].as_str().unwrap().is_empty());
    assert_eq!(
        (&waits["position"], &waits["command"]),
        (&1.into(), &"echo".into())
    );
    assert!(waits.get("fence").is_none(), "{waits}");
    for claim in [held, waits] {
        let time = |key: &str| {
            claim[key]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .unwrap()
        };
        let lease = time("until").duration_since(time("since"));
        assert!((50..=120).contains(&lease.as_secs()), "{claim}");
        assert!(claim["since"].as_str().unwrap().ends_with('Z'));
    }
    drop((waiter, holder));
}

#[test]
fn the_table_is_for_people() {
    let place = Place::new();
    let holder = place.hold("x", &["--permits", "2", "--of", "3"], "sleep 1000");
    let other = place.hold("y", &[], "sleep 1000");
    let all = place.leasehold(&["status"]);
    let lines: Vec<_> = all.out.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines.len() == 3, "{all:?}");
    assert!(
        lines[1].starts_with('x') && lines[1].contains("2 of 3") && lines[1].contains(" ago"),
        "{all:?}"
    );
    let one = place.leasehold(&["status", "y"]);
    assert_eq!((one.code, one.out.lines().count()), (0, 2), "{one:?}");
    drop((holder, other));
}

#[test]
fn watch_shows_changes_until_interrupted() {
    let place = Place::new();
    let watch = place.start(&["status", "--watch", "--json"]);
    let shown = |what: &str, found: &dyn Fn(&[&str]) -> bool| {
        until(what, || {
            let text = watch.printed();
            let lines: Vec<_> = text.lines().collect();
            if found(&lines) {
                Ok(())
            } else {
                Err(text.clone())
            }
        });
    };
    shown("nothing", &|lines| lines == ["[]"]);
    let holder = place.hold("x", &[], "sleep 1000");
    shown("the holder", &|lines| {
        lines.len() == 2 && lines[1].contains("fence")
    });
    drop(holder);
    shown("nothing again", &|lines| {
        lines.len() == 3 && lines[2] == "[]"
    });
    watch.signal(Signal::INT);
    let answer = watch.end();
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{answer:?}");
}

#[cfg(feature = "all-engines")]
#[test]
fn a_holder_is_shown_since_it_holds_and_with_its_lease() {
    use leasehold_testkit::servers::redis::Redis;

    let server = Redis::start();
    let here = Place::new();
    let sqlite = format!("sqlite:{}", here.path("locks.db").display());
    for url in [here.url(), server.url(), sqlite] {
        let place = Place::new();
        let run = |script| {
            [
                "--url", &url, "run", "x", "--lease", "30s", "--", "sh", "-c", script,
            ]
        };
        let first = place.start(&run("until [ -e go ]; do sleep 0.05; done"));
        let claim = |whose: &str, at: usize| {
            until("the claim", || {
                let status = place.leasehold(&["--url", &url, "status", "--json"]);
                let lines: serde_json::Value = serde_json::from_str(&status.out).unwrap();
                let claims = &lines[0][whose];
                let there = claims.as_array().is_some_and(|claims| claims.len() == at);
                there.then(|| claims[0].clone()).ok_or(status.out)
            })
        };
        let held = claim("holders", 1);
        let second = place.start(&run("sleep 1000"));
        assert!(claim("waiters", 1).get("held_since").is_none());
        let began = jiff::Timestamp::now();
        until("a while", || {
            let passed = jiff::Timestamp::now().duration_since(began);
            (passed.as_millis() > 300).then_some(()).ok_or(passed)
        });
        let asked = jiff::Timestamp::now();
        std::fs::write(place.path("go"), "").unwrap();
        assert_eq!(first.end().code, 0);
        let now = claim("holders", 1);
        let time = |claim: &serde_json::Value, key: &str| {
            let time = claim[key]
                .as_str()
                .unwrap_or_else(|| panic!("{url}: {key} in {claim}"));
            time.parse::<jiff::Timestamp>().unwrap()
        };
        assert!(
            time(&now, "held_since") > time(&held, "held_since"),
            "{now}"
        );
        let late = time(&now, "held_since").duration_since(asked);
        assert!(
            late.as_millis() > -100,
            "{url}: before the other ended: {now}"
        );
        assert!(time(&now, "since") < time(&now, "held_since"), "{now}");
        assert_eq!(now["lease_ms"], 30_000, "{url}: {now}");
        drop(second);
    }
}
