//! Whether a server is fit for locks.

use super::client::Reply;
use super::error::Trouble;

/// The oldest version the script runs on.
const OLDEST: (u32, u32) = (6, 2);

/// Refuses a replica, an old server, and one that throws keys away when its memory is full. A setting that the server
/// does not show is taken to be good.
pub(super) fn check(infos: &[&Reply], role: &Reply, evicting: bool) -> Result<(), Trouble> {
    let text = infos.iter().filter_map(|info| (*info).clone().text().ok());
    let text: String = text.collect();
    if let Reply::List(role) = role
        && matches!(role.first(), Some(Reply::Text(role)) if role == b"slave")
    {
        return Err(Trouble::Down(
            "this server is a replica, and locks need its master: name the master, or use redis+sentinel://".to_owned(),
        ));
    }
    if let Some(version) = field(&text, "redis_version:")
        && parts(version) < OLDEST
    {
        let what = format!("Redis {version} is too old: use 6.2 or later");
        return Err(Trouble::Unfit(what));
    }
    let limited = field(&text, "maxmemory:").is_some_and(|bytes| bytes != "0");
    match field(&text, "maxmemory_policy:") {
        Some(policy) if limited && policy != "noeviction" && !evicting => {
            Err(Trouble::Unfit(format!(
                "the server throws keys away when its memory is full (maxmemory-policy {policy}), and a lock is a key: \
             set noeviction, or say evicting=1 to live with it"
            )))
        }
        _ => Ok(()),
    }
}

pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

fn parts(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(info: &str, role: &str, evicting: bool) -> Result<(), Trouble> {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        check(&[&text(info)], &Reply::List(vec![text(role)]), evicting)
    }

    #[test]
    fn unfit_servers_are_named() {
        assert_eq!(verdict("redis_version:6.2.0\r\n", "master", false), Ok(()));
        assert_eq!(verdict("redis_version:10.0.1\r\n", "master", false), Ok(()));
        assert_eq!(verdict("", "master", false), Ok(()));
        assert!(matches!(
            verdict("redis_version:6.0.16\r\n", "master", false),
            Err(Trouble::Unfit(_))
        ));
        assert!(matches!(verdict("", "slave", false), Err(Trouble::Down(_))));
        let full = "maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n";
        assert!(matches!(
            verdict(full, "master", false),
            Err(Trouble::Unfit(_))
        ));
        assert_eq!(verdict(full, "master", true), Ok(()));
        assert_eq!(
            verdict(
                "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n",
                "master",
                false
            ),
            Ok(())
        );
    }
}
