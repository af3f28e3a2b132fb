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
        ("redis://h?prefix=hunter2&prefix=a", "given twice"),
    ] {
        let error = url_engine(url).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(hint) && !shown.contains("ter2"), "{shown}");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

/// The printed form of a URL, whether it can be read and opened or not.
fn shown(text: &str) -> String {
    let mut shown = match Url::parse(text) {
        Ok(url) => format!("{url} {url:?} {:?}", url.params()),
        Err(error) => format!("{error} {error:?}"),
    };
    match url_engine(text) {
        Ok((_, engine)) => shown.push_str(&engine.location()),
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
    "etcd",
    "etcds",
    "consul",
    "consuls",
    "consul+unix",
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "nope",
    "",
    "REDIS",
    "redis+unix",
    "sqlite",
    "file",
    "memory",
];

/// Whether opening a URL stays in memory: no directory is made, and no file of certificates is read.
fn opens_nothing(text: &str) -> bool {
    let files = ["ca=", "cert=", "key=", "sslrootcert=", "token_file=", "%"];
    let scheme = text.split(':').next().unwrap_or("").to_lowercase();
    schemes::names_hosts(&scheme) && !files.iter().any(|option| text.contains(option))
}

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

    /// Neither is the value of an option that is a secret, or is spelled nearly like one.
    #[test]
    fn no_secret_option_is_ever_shown(
        scheme in prop::sample::select(SCHEMES),
        name in prop::sample::select(&[
            "password", "sentinel_password", "auth", "token", "secret", "passwd", "pasword", "Password", "sentinel_pass",
            "auth_token", "pwd", "credentials", "%70assword", "AUTH",
        ]),
        before in "[a-z0-9:/?#%=@]{0,4}",
        after in "[a-z0-9:/?#%=@]{0,4}",
        more in "(&prefix=x|&db=1|&&|&=)?",
    ) {
        let text = format!("{scheme}://h,i,j/x?{name}={before}hunter2{after}{more}");
        prop_assert!(!shown(&text).contains("hunter2"), "{text}: {}", shown(&text));
    }
}

/// Whatever the text is, it is read or refused; and what is shown of it is the same with another password.
#[cfg_attr(test, test)]
pub(crate) fn inputs_that_no_person_wrote() {
    let fuzz = crate::fuzz::Fuzz {
        name: "url",
        words: &[
            b"://",
            b"@",
            b":",
            b"/",
            b"?",
            b"&",
            b"=",
            b"%2F",
            b"%ff",
            b"redis",
            b"+sentinel",
            b"postgres",
            b"mysql",
            b"zookeeper",
            b"redlock",
            b"etcd",
            b"etcds",
            b"consul",
            b"consuls",
            b"token=",
            b"memory:",
            b"password=",
            b"auth=",
            b"prefix=",
            b"timeout=",
            b"sslmode=",
            b"longest=",
            b"[::1]",
        ],
    };
    fuzz.run(&[], |input| {
        let text = String::from_utf8_lossy(input);
        let opened = opens_nothing(&text);
        let seen = seen(&text, opened);
        let Ok(url) = Url::parse(&text) else {
            return (seen.split(' ').take(6).map(str::len).sum(), None);
        };
        // A token of Consul that is no text is refused, with that reason.
        let text_only = !url.scheme().starts_with("consul")
            || url
                .password()
                .is_some_and(|password| password.bytes().all(|byte| byte.is_ascii_graphic()));
        if url.password().is_some() && text_only {
            let other = with_another_password(&text).unwrap();
            assert_eq!(seen, self::seen(&other, opened), "{text}");
        }
        let parts = (
            url.hosts().len().min(4),
            url.params.len().min(3),
            url.user().is_some(),
        );
        let opened = opened.then(|| seen.split(' ').count().min(40));
        let scheme = url.scheme().len().min(12);
        (0, Some((scheme, parts, url.password().is_some(), opened)))
    });
}

/// What is shown of a URL, and of its engine if it is opened too.
fn seen(text: &str, open: bool) -> String {
    let mut seen = match Url::parse(text) {
        Ok(url) => {
            #[cfg(any(feature = "zookeeper", feature = "postgres", feature = "mysql"))]
            let _ = url.addresses(1);
            format!("{url} {url:?} {:?}", url.params())
        }
        Err(error) => format!("{error} {error:?}"),
    };
    if open {
        seen += &match url_engine(text) {
            Ok((_, engine)) => engine.location(),
            Err(error) => format!("{error} {error:?}"),
        };
    }
    seen
}

/// The same URL with another password in its place.
fn with_another_password(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("//")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let at = rest[..end].rfind('@')?;
    let colon = rest[..at].find(':')?;
    Some(format!(
        "{scheme}//{}another{}",
        &rest[..=colon],
        &rest[at..]
    ))
}
