use super::*;

fn read(url: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let find = |name: &str| {
        let found = env.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Config::read(&url, &find)
}

#[test]
fn a_url_says_where_and_never_shows_the_token() {
    let config = read("consul://:hunter2@h1,h2:1/a/b?ns=team&dc=east", &[]).unwrap();
    assert_eq!(config.token(), Some("hunter2"));
    let shown = "consul://h1:8500,h2:1/a/b?ns=team&dc=east";
    assert_eq!(format!("{config:?}"), shown);
    let config = read("consul://h?token=hunter2&checks=serf", &[]).unwrap();
    assert!(config.serf);
    assert_eq!(config.token(), Some("hunter2"));
    assert_eq!(format!("{config:?}"), "consul://h:8500/leasehold");
    let config = read("consul+unix:/run/consul.sock?prefix=x", &[]).unwrap();
    assert_eq!(config.location(), "consul+unix:/run/consul.sock?prefix=x");
}

#[test]
fn the_environment_speaks_where_the_url_is_silent() {
    let env = [
        ("CONSUL_HTTP_ADDR", "https://agent:8501"),
        ("CONSUL_HTTP_TOKEN", "hunter2"),
        ("CONSUL_NAMESPACE", "team"),
        ("CONSUL_PARTITION", "part"),
    ];
    let config = read("consul:", &env).unwrap();
    let shown = "consuls://agent:8501/leasehold?ns=team&partition=part";
    assert_eq!(config.location(), shown);
    assert_eq!(config.token(), Some("hunter2"));
    let config = read("consul://h?token=own&ns=mine", &env).unwrap();
    assert_eq!(config.token(), Some("own"));
    assert_eq!(
        config.location(),
        "consul://h:8500/leasehold?ns=mine&partition=part"
    );
    let config = read(
        "consul://",
        &[("CONSUL_HTTP_ADDR", "unix:///run/consul.sock")],
    )
    .unwrap();
    assert_eq!(config.place, Place::Unix("/run/consul.sock".into()));
    let config = read("consul:", &[("CONSUL_HTTP_SSL", "true")]).unwrap();
    assert_eq!(config.location(), "consuls://127.0.0.1:8500/leasehold");
    assert_eq!(read("consul:", &[]).unwrap().host(), "127.0.0.1:8500");
}

#[test]
fn a_token_may_be_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "hunter2\n").unwrap();
    let file = file.to_str().unwrap();
    let config = read("consul:", &[("CONSUL_HTTP_TOKEN_FILE", file)]).unwrap();
    assert_eq!(config.token(), Some("hunter2"));
    let config = read(&format!("consul://h?token_file={file}"), &[]).unwrap();
    assert_eq!(config.token(), Some("hunter2"));
}

#[test]
fn certificates_of_the_environment_are_for_tls_where_the_url_has_none() {
    let ca = ("CONSUL_CACERT", "/nowhere/ca");
    let (cert, key) = (
        ("CONSUL_CLIENT_CERT", "/nowhere/cert"),
        ("CONSUL_CLIENT_KEY", "/nowhere/key"),
    );
    let refused = |url, env: &[_]| read(url, env).unwrap_err();
    assert!(refused("consuls://h", &[ca]).contains("/nowhere/ca"));
    assert!(refused("consuls://h?ca=/own", &[ca]).contains("/own"));
    assert!(refused("consuls://h", &[cert, key]).contains("/nowhere/key"));
    assert!(refused("consuls://h?cert=/own&key=/own", &[cert, key]).contains("/own"));
    for half in [cert, key] {
        assert!(refused("consuls://h", &[half]).contains("are a pair"));
    }
    assert!(read("consul://h", &[ca, cert]).unwrap().tls.is_none());
}

#[test]
fn refuses_what_it_does_not_know() {
    for (url, word) in [
        ("consul://h/a//b", "empty"),
        ("consul://h/a/../b", ".."),
        ("consul://h?x=1", "x"),
        ("consul://h?checks=all", "serf"),
        ("consul://h?fence_floor=1.5", "2^63"),
        ("consul://h?layout=consul&fence_floor=", "2^63"),
        ("consul://h?layout=other", "layout"),
        ("consul://h?mutex_key=name", "layout=consul"),
        ("consul://h?layout=consul&mutex_key=x", "mutex_key"),
        ("consul://h?locks=9", "layout=consul"),
        ("consul://h?layout=consul&locks=0", "above 0"),
        ("consul://h?ca=/nowhere", "consuls"),
        ("consuls://h?ca=/nowhere", "/nowhere"),
        ("consuls://h?cert=/nowhere", "key"),
        ("consul://h?token=a&token_file=b", "both"),
        ("consul://h?token_file=/nowhere", "/nowhere"),
        ("consul://h?token=a%0Ab", "character"),
        ("consul://hunter2@h", "consul://:TOKEN@HOST"),
        ("consul://app:hunter2@h", "consul://:TOKEN@HOST"),
        ("consul+unix://hunter2@/run/consul.sock", "token_file"),
    ] {
        let error = read(url, &[]).unwrap_err();
        assert!(error.contains(word), "{url}: {error}");
        assert!(!error.contains("hunter2"), "{url}: {error}");
    }
    let unsafe_tls = [("CONSUL_HTTP_SSL_VERIFY", "false")];
    assert!(read("consuls://h", &unsafe_tls).is_err());
    assert!(read("consul:", &[("CONSUL_HTTP_ADDR", "ftp://h")]).is_err());
}

/// The keys of `consul lock` are the names themselves, below the path of the URL if it has one.
#[test]
fn a_denial_names_the_rules_of_the_layout() {
    for (url, rules) in [
        ("consul://h", &["key_prefix \"leasehold/\""][..]),
        ("consul://h/a?layout=consul", &["key_prefix \"a/\""]),
        (
            "consul://h?layout=consul",
            &["key_prefix \"NAME\"", "key_prefix \"leasehold/\""],
        ),
    ] {
        let rule = read(url, &[]).unwrap().rule("txn");
        assert!(
            rules.iter().all(|part| rule.contains(part)),
            "{url}: {rule}"
        );
        assert_eq!(
            rule.matches("key_prefix").count(),
            rules.len(),
            "{url}: {rule}"
        );
    }
}
