//! Secrets that other users must not see, and bytes that must not reach a terminal.

use leasehold::engine::Identity;

use crate::common::Place;

const SECRET: &str = "hunter2";

/// Everything that is in the directory of the locks.
fn stored(place: &Place) -> String {
    let folders = ["locks", "locks/lines", "locks/sessions"].map(|folder| place.path(folder));
    let files = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
    let texts = files.filter_map(|file| std::fs::read(file.unwrap().path()).ok());
    texts
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .collect()
}

#[test]
fn a_command_is_stored_by_its_name_and_arguments_only_if_that_is_wanted() {
    let place = Place::new();
    let script = format!("sleep 1000; : mysql -p{SECRET} --token={SECRET}");
    for more in [&[][..], &["--show-args"]] {
        let holder = place.hold("x", more, &script);
        let shown = place.leasehold(&["status", "--json"]).out;
        let (stored, asked) = (stored(&place), !more.is_empty());
        assert!(
            !stored.contains(SECRET) && !shown.contains(SECRET),
            "{shown} {stored}"
        );
        assert_eq!(shown.contains("sleep 1000"), asked, "{shown}");
        assert_eq!(stored.contains("sleep 1000"), asked, "{stored}");
        assert!(shown.contains("\"command\":\"sh"), "{shown}");
        drop(holder);
    }
}

#[test]
fn a_reason_cannot_drive_the_holders_terminal() {
    let place = Place::new();
    let holder = place.hold("x", &["--lease", "1h"], "sleep 1000");
    let why = "\x1b[2J\u{9b}31m\u{202e}gnp.exe";
    assert_eq!(place.leasehold(&["evict", "x", "--why", why]).code, 0);
    let answer = holder.end();
    assert_eq!(answer.code, 76, "{answer:?}");
    assert!(answer.err.contains("?[2J?31m?gnp.exe"), "{answer:?}");
    assert!(
        !answer.err.contains(['\x1b', '\u{9b}', '\u{202e}']),
        "{answer:?}"
    );
}

/// A client with a program of its own says what it likes about itself.
#[test]
fn a_host_a_command_and_a_reason_begin_no_line() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let who = Identity::new("h\nbackup  17  mutex", 7, "c\td\nleasehold: y is free");
    let options = leasehold::ConnectOptions::new().identity(who);
    let url = format!("sqlite:{}", place.path("locks.db").display());
    let held = async {
        let client = options.connect(&url).await.unwrap();
        let guard = client.mutex("x").lock().await.unwrap();
        (client, guard)
    };
    let runtime = runtime.unwrap();
    let (_client, guard) = runtime.block_on(held);
    let table = place.leasehold(&["--url", &url, "status"]).out;
    assert_eq!(table.lines().count(), 2, "{table:?}");
    assert!(
        table.contains("h?backup") && table.contains("c?d?"),
        "{table:?}"
    );
    let busy = place.leasehold(&["--url", &url, "run", "x", "--no-wait", "--", "true"]);
    assert_eq!((busy.code, busy.err.lines().count()), (75, 1), "{busy:?}");
    let holder = place.hold("z", &["--lease", "1h"], "sleep 1000");
    let why = "over\nleasehold: all is well\u{ad}";
    assert_eq!(place.leasehold(&["evict", "z", "--why", why]).code, 0);
    let answer = holder.end();
    assert!(
        answer.err.contains("over?leasehold: all is well?"),
        "{answer:?}"
    );
    drop(guard);
}

#[test]
fn a_name_cannot_drive_a_terminal_and_json_keeps_it() {
    let place = Place::new();
    let name = "a\u{202e}b";
    let holder = place.hold(name, &[], "sleep 1000");
    let table = place.leasehold(&["status"]).out;
    assert!(
        table.contains("a?b") && !table.contains('\u{202e}'),
        "{table:?}"
    );
    let json = place.leasehold(&["status", "--json"]).out;
    assert!(!json.contains('\u{202e}'), "{json:?}");
    let lines: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(lines[0]["name"], name);
    let busy = place.leasehold(&["-v", "run", name, "--no-wait", "--", "true"]);
    assert!(
        busy.code == 75 && !busy.err.contains('\u{202e}'),
        "{busy:?}"
    );
    drop(holder);
}

#[test]
fn the_url_may_come_from_a_file_that_a_nested_run_finds_too() {
    let place = Place::new();
    std::fs::write(place.path("where"), format!("{}\n", place.url())).unwrap();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("cd /; {leasehold} status --json");
    let args = ["--url-file", "where", "run", "x", "--", "sh", "-c", &script];
    let output = place
        .command(&args)
        .env_remove("LEASEHOLD_URL")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\"name\":\"x\""),
        "{text} {:?}",
        output.stderr
    );
}

#[cfg(feature = "redis")]
mod on_redis {
    use super::*;
    use crate::common::{Running, until};
    use leasehold_testkit::servers::redis::Redis;

    #[test]
    fn the_command_gets_the_url_without_its_password_unless_asked() {
        let (place, server) = (Place::new(), Redis::start());
        let _ = server.cli(&format!("CONFIG SET requirepass {SECRET}"));
        let host = server.url().trim_start_matches("redis://").to_owned();
        let url = format!("redis://:{SECRET}@{host}");
        let told = |more: &[&str]| {
            let script = "env | grep -a ^LEASEHOLD_";
            let args = [&["run", "x"], more, &["--", "sh", "-c", script]].concat();
            // As a variable: in the list of arguments every user sees it.
            let answer = Running::start(place.command(&args).env("LEASEHOLD_URL", &url)).end();
            assert_eq!(answer.code, 0, "{answer:?}");
            answer.out
        };
        let plain = told(&[]);
        assert!(
            plain.contains(&format!("LEASEHOLD_URL=redis://{host}")),
            "{plain}"
        );
        assert!(!plain.contains(SECRET), "{plain}");
        assert!(told(&["--pass-url"]).contains(&format!("LEASEHOLD_URL={url}")));
    }

    /// The password is in no argument and in no URL, and a nested run finds it where the outer one did.
    #[test]
    fn the_password_may_come_from_the_variable_of_the_servers_own_program() {
        let (place, server) = (Place::new(), Redis::start());
        let _ = server.cli(&format!("CONFIG SET requirepass {SECRET}"));
        let leasehold = env!("CARGO_BIN_EXE_leasehold");
        let script = format!("env | grep -a ^LEASEHOLD_; {leasehold} status --json");
        let args = ["run", "x", "--", "sh", "-c", &script];
        let run = |password: &str| {
            let mut command = place.command(&args);
            let _ = command.env("LEASEHOLD_URL", server.url());
            Running::start(command.env("REDISCLI_AUTH", password)).end()
        };
        let answer = run(SECRET);
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(answer.out.contains("\"name\":\"x\""), "{answer:?}");
        assert!(!answer.out.contains(SECRET), "{answer:?}");
        let wrong = run("wrong-and-secret");
        assert_eq!(wrong.code, 77, "{wrong:?}");
        assert!(!wrong.err.contains("wrong-and-secret"), "{wrong:?}");
    }

    #[test]
    fn watching_goes_on_after_an_outage() {
        let (place, mut server) = (Place::new(), Redis::start());
        let watch = ["--url", &server.url(), "status", "--watch", "--json"];
        let watch = Running::start(&mut place.command(&watch));
        let looks = |count: usize| {
            until("looks", || match watch.printed() {
                text if text.lines().count() >= count => Ok(()),
                text => Err(text),
            });
        };
        looks(1);
        server.kill();
        until("word of the outage", || match watch.said() {
            text if text.contains("asking again") => Ok(()),
            text => Err(text),
        });
        server.restart();
        looks(2);
        watch.signal(rustix::process::Signal::INT);
        let answer = watch.end();
        assert_eq!(
            (answer.code, answer.err.lines().count()),
            (0, 1),
            "said once: {answer:?}"
        );
    }
}
