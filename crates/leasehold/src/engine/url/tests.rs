use proptest::prelude::*;

use super::*;
use crate::engine::url_engine;

#[test]
fn takes_urls_apart() {
    let url = Url::parse("zookeeper://h1:2181,h2/locks/a%20b?acl=x&auth=p").unwrap();
    assert_eq!(url.hosts(), ["h1:2181", "h2"]);
    assert_eq!(url.path(), "/locks/a b");
    assert_eq!(
        url.to_string(),
        "zookeeper://h1:2181,h2/locks/a b?acl=x&auth=***"
    );
    let url = Url::parse("file:/var/lock/x?y").unwrap();
    assert_eq!((url.path(), url.hosts().len()), ("/var/lock/x", 0));
    assert_eq!(Url::parse("FILE:x").unwrap().scheme(), "file");
    let url = Url::parse("redis://:p%40ss@h").unwrap();
    assert_eq!((url.user(), url.password()), (None, Some("p@ss")));
    for path in ["file:/tmp/a@b", "memory:a@b", "redis+unix:///run/a@b"] {
        assert!(Url::parse(path).unwrap().path().ends_with("a@b"), "{path}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (url, hint) in [
        ("hunter2", "no scheme"),
        ("app:hunter2@h", "SCHEME://USER:PASSWORD@HOST"),
        ("redis:app:hunter2@h", "SCHEME://USER:PASSWORD@HOST"),
        ("redis://app:hun/ter2@h", "encode / as %2F, ? as %3F"),
        ("redis://app:hun?ter2@h", "encode / as %2F, ? as %3F"),
        ("redis:/127.0.0.1:1", "redis://HOST"),
        ("redis://u:hunter2%ff@h", "UTF-8"),
        ("memory:?nope=hunter2", "\"nope\""),
    ] {
        let error = url_engine(url).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(hint) && !shown.contains("ter2"), "{shown}");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

/// What is shown of a URL, whether it can be read and opened or not.
fn shown(text: &str) -> String {
    let mut shown = match Url::parse(text) {
        Ok(url) => format!("{url} {url:?} {:?}", url.params()),
        Err(error) => format!("{error} {error:?}"),
    };
    match url_engine(text) {
        Ok(engine) => shown.push_str(&engine.location()),
        Err(error) => shown.push_str(&format!("{error} {error:?}")),
    }
    shown
}

const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "redis+sentinel",
    "redis+cluster",
    "redlock",
    "zookeeper",
    "postgres",
    "mysql",
    "nope",
    "",
    "REDIS",
    "redis+unix",
    "sqlite",
    "file",
    "memory",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// Wherever a login is put, and whatever it is made of, its password is not shown.
    #[test]
    fn no_password_is_ever_shown(
        scheme in prop::sample::select(SCHEMES),
        slashes in prop::sample::select(&["", "/", "//", "///"]),
        user in "[a-z%]{0,3}",
        before in "[a-z0-9/?#@%:,\\[\\]&= \\\\]{0,4}",
        after in "[a-z0-9/?#@%:,\\[\\]&= \\\\]{0,4}",
        rest in "[a-z0-9/?#%:,\\[\\]&=]{0,8}",
    ) {
        // Without an authority the text after the other schemes is the path of a file or a label, and is shown as such.
        let slashes = if schemes::names_hosts(&scheme.to_lowercase()) { slashes } else { "//" };
        let text = format!("{scheme}:{slashes}{user}:{before}hunter2{after}@{rest}");
        prop_assert!(!shown(&text).contains("hunter2"), "{text}: {}", shown(&text));
    }

    /// Whatever the text is, it is read or refused.
    #[test]
    fn any_text_is_taken(text in "(redis:|redlock:|zookeeper:|postgres:|mysql:)?\\PC{0,40}") {
        if let Ok(url) = Url::parse(&text) {
            let _ = url.to_string();
            #[cfg(any(feature = "zookeeper", feature = "postgres", feature = "mysql"))]
            let _ = url.addresses(1);
        }
    }
}
