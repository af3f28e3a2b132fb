//! The password of a URL that has none, from where the servers' own programs look for it: a URL in a list of arguments is
//! seen by every user of the machine.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use leasehold::engine::Url;

use crate::exit::{Exit, Failure};

/// Looks a variable up.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The URL with its password, if it has none and its server's variables have one.
pub(crate) fn completed(text: &str, variable: Variable<'_>) -> Result<Option<String>, Failure> {
    let Ok(url) = Url::parse(text) else {
        // The library refuses it in its own words.
        return Ok(None);
    };
    if url.password().is_some() {
        return Ok(None);
    }
    let password = match url.scheme() {
        "postgres" | "postgresql" => match read(variable, "PGPASSWORD")? {
            Some(password) => Some(password),
            None => pgpass(&url, variable)?,
        },
        "mysql" | "mariadb" => match read(variable, "MYSQL_PWD")? {
            Some(password) => Some(password),
            None => my_cnf(variable)?,
        },
        "etcd" | "etcds" => return etcd(text, &url, variable),
        // The library reads CONSUL_HTTP_TOKEN and its file; ZooKeeper's programs have no variable.
        scheme if scheme.starts_with("red") => read(variable, "REDISCLI_AUTH")?,
        _ => None,
    };
    Ok(password.map(|password| with_password(text, &password)))
}

fn read(variable: Variable<'_>, name: &str) -> Result<Option<String>, Failure> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let wrong = |_| Failure::new(Exit::Config, format!("{name} is not UTF-8"));
    value.into_string().map(Some).map_err(wrong)
}

/// From the file `PGPASSFILE`, or `~/.pgpass`. As with `psql`, a file that other users may read is left alone, with a word.
fn pgpass(url: &Url, variable: Variable<'_>) -> Result<Option<String>, Failure> {
    let path = match (variable("PGPASSFILE"), variable("HOME")) {
        (Some(file), _) if !file.is_empty() => file.into(),
        (_, Some(home)) if !home.is_empty() => Path::new(&home).join(".pgpass"),
        _ => return Ok(None),
    };
    Ok(private(&path)?.and_then(|text| password_in(&text, url)))
}

/// The text of a file that other users may not read; none, with a word, if they may.
fn private(path: &Path) -> Result<Option<String>, Failure> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(None);
    };
    if !found.is_file() || found.mode() & 0o077 != 0 {
        let what = "is not a file of this user alone: chmod 600 it. It was not used";
        crate::say(&format!("{} {what}", path.display()));
        return Ok(None);
    }
    let text = std::fs::read_to_string(path);
    let text =
        text.map_err(|error| Failure::new(Exit::Config, format!("{}: {error}", path.display())))?;
    Ok(Some(text))
}

/// `ETCDCTL_USER`, which is USER:PASSWORD or the user alone, and `ETCDCTL_PASSWORD`.
fn etcd(text: &str, url: &Url, variable: Variable<'_>) -> Result<Option<String>, Failure> {
    let (given, password) = (
        read(variable, "ETCDCTL_USER")?,
        read(variable, "ETCDCTL_PASSWORD")?,
    );
    let given = given.unwrap_or_default();
    let (user, in_one) = match (password, given.split_once(':')) {
        (Some(password), _) => (given.as_str(), Some(password)),
        (None, Some((user, password))) => (user, Some(password.to_owned())),
        (None, None) => (given.as_str(), None),
    };
    Ok(match (in_one, url.user()) {
        (None, _) => None,
        (Some(password), Some(_)) => Some(with_password(text, &password)),
        (Some(_), None) if user.is_empty() => None,
        (Some(password), None) => {
            let user = encoded(user);
            let text = text.replacen("://", &format!("://{user}@"), 1);
            Some(with_password(&text, &password))
        }
    })
}

/// `password` of the section `[client]` in `~/.my.cnf`.
fn my_cnf(variable: Variable<'_>) -> Result<Option<String>, Failure> {
    let Some(home) = variable("HOME").filter(|home| !home.is_empty()) else {
        return Ok(None);
    };
    let Some(text) = private(&Path::new(&home).join(".my.cnf"))? else {
        return Ok(None);
    };
    let mut client = false;
    for line in text.lines().map(str::trim) {
        match line.split_once('=') {
            _ if line.starts_with('[') => client = line == "[client]",
            Some((name, value)) if client && name.trim() == "password" => {
                let value = value.trim();
                let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
                let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
                return Ok(Some(value.to_owned()));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The password of the first line that fits: `HOST:PORT:DATABASE:USER:PASSWORD`, with `*` for each.
fn password_in(text: &str, url: &Url) -> Option<String> {
    let user = url.user()?;
    let database = match url.path().trim_start_matches('/') {
        "" => user,
        database => database,
    };
    let host = url.hosts().first()?;
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (host.as_str(), "5432"),
    };
    let host = host.trim_matches(['[', ']']);
    let wanted = [host, port, database, user];
    text.lines().map(fields).find_map(|line| {
        let (password, place) = line.split_last()?;
        let fits = place.iter().zip(wanted);
        let fits = place.len() == 4
            && fits
                .into_iter()
                .all(|(has, wants)| has == "*" || has == wants);
        fits.then(|| password.clone())
    })
}

/// The fields of a line; a backslash keeps the character after it.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let kept = match character {
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(field) = fields.last_mut() {
            field.push(kept);
        }
    }
    fields
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Puts an encoded password into a URL that has none.
fn with_password(text: &str, password: &str) -> String {
    let encoded = encoded(password);
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = user.trim_end_matches(':');
    format!("{scheme}://{user}:{encoded}@{hosts}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn password(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        };
        let completed = completed(url, &variable).unwrap();
        completed.map(|text| {
            let (before, after) = (Url::parse(url).unwrap(), Url::parse(&text).unwrap());
            assert_eq!(before.hosts(), after.hosts());
            assert_eq!((before.user(), before.path()), (after.user(), after.path()));
            after.password().unwrap().to_owned()
        })
    }

    #[test]
    fn each_server_has_its_variables() {
        let odd = "a/b?c@d:e%";
        let all = [
            ("REDISCLI_AUTH", odd),
            ("PGPASSWORD", odd),
            ("MYSQL_PWD", odd),
        ];
        for url in [
            "redis://h",
            "redis://app@h:1/2?prefix=x",
            "rediss://h",
            "redis+unix:///run/r.sock?db=2",
            "redis+sentinel://a,b/m",
            "redlock://app@a,b,c",
            "postgres://app@h/db",
            "mysql://app@h/db?connections=1",
        ] {
            assert_eq!(password(url, &all).as_deref(), Some(odd), "{url}");
            assert_eq!(password(url, &[]), None, "{url}");
        }
        for other in [
            "redis://:own@h",
            "postgres://app:own@h/db",
            "zookeeper://a",
            "file:/x",
            "nonsense",
        ] {
            assert_eq!(password(other, &all), None, "{other}");
        }
    }

    #[test]
    fn a_login_of_etcd_is_in_one_variable_or_in_two() {
        let login = |url: &str, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.into())
            };
            let text = completed(url, &variable).unwrap()?;
            let url = Url::parse(&text).unwrap();
            let (user, password) = (url.user()?.to_owned(), url.password()?.to_owned());
            Some(format!("{user} {password} {}", url.hosts().join(" ")))
        };
        let one = [("ETCDCTL_USER", "me:a/b:c")];
        let two = [("ETCDCTL_USER", "me"), ("ETCDCTL_PASSWORD", "a/b:c")];
        for variables in [&one[..], &two] {
            let found = login("etcd://h:1,i?prefix=x", variables);
            assert_eq!(found.as_deref(), Some("me a/b:c h:1 i"));
            let found = login("etcds://you@h", variables);
            assert_eq!(found.as_deref(), Some("you a/b:c h"));
        }
        assert_eq!(login("etcd://h", &two[..1]), None);
        assert_eq!(login("etcd://h", &two[1..]), None);
        assert_eq!(login("etcd://h", &[]), None);
    }

    #[test]
    fn a_password_of_mariadb_may_be_in_its_file_of_options() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".my.cnf");
        for (line, found) in [
            ("password=a b#c", "a b#c"),
            ("password = \"quoted\"", "quoted"),
            ("user=x\npassword='q'", "q"),
        ] {
            let text = format!("[mysqld]\npassword=no\n[client]\n{line}\n");
            std::fs::write(&file, text).unwrap();
            let with = |mode: u32| {
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
                password(
                    "mysql://app@h/db",
                    &[("HOME", home.path().to_str().unwrap())],
                )
            };
            assert_eq!(with(0o600).as_deref(), Some(found));
            assert_eq!(with(0o644), None, "others may read it");
        }
    }

    #[test]
    fn a_password_file_of_postgres_is_read_as_psql_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pgpass");
        let text = "# words\nother:*:*:*:no\nh:5433:*:app:third\nh:*:d\\:b:app:a\\:b\\\\c:d\n*:*:*:app:last";
        std::fs::write(&file, text).unwrap();
        let with = |url: &str, mode: u32| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            password(
                url,
                &[("PGPASSFILE", file.to_str().unwrap()), ("HOME", "/nowhere")],
            )
        };
        for (url, found) in [
            ("postgres://app@h:5433/x", Some("third")),
            ("postgres://app@h/d:b", Some("a:b\\c:d")),
            ("postgres://app@[::1]:1/x", Some("last")),
            ("postgres://other@h/x", None),
        ] {
            assert_eq!(with(url, 0o600).as_deref(), found, "{url}");
            assert_eq!(with(url, 0o640), None, "others may read it");
        }
    }
}
