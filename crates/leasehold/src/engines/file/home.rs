//! The directory of a user who named none.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::Trouble;
use crate::error::ErrorKind;

/// Root's own. Only root can make it.
const ROOT: &str = "/run/leasehold";

/// Below the home of every other user.
const BELOW_HOME: &str = ".local/state/leasehold";

/// The directory of this user: it depends on nothing but the user, so that a cron job, a shell and a sandboxed service
/// meet there or are refused, and only the user can make it. `/run/user/UID` would be neither: it is there only while
/// the user is logged in.
pub(super) fn default_path() -> Result<PathBuf, Trouble> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok(ROOT.into());
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Users of a directory service are not in that file; the environment of their programs names the home.
    let home = home_in(&passwd, user.as_raw()).or_else(std::env::home_dir);
    below(home.as_deref(), user.as_raw())
}

/// The home of a user, by the text of `/etc/passwd`.
fn home_in(passwd: &str, user: u32) -> Option<PathBuf> {
    let mut users = passwd.lines().map(|line| line.split(':'));
    users.find_map(|mut fields| {
        let found = fields.nth(2)?.parse::<u32>().ok()?;
        fields.nth(2).filter(|_| found == user).map(PathBuf::from)
    })
}

fn below(home: Option<&Path>, user: u32) -> Result<PathBuf, Trouble> {
    let why = match home.map(|home| (home, fs::metadata(home))) {
        None => "has no home".to_owned(),
        Some((home, Err(error))) => format!("cannot use its home {}: {error}", home.display()),
        Some((home, Ok(found))) if found.uid() != user => {
            format!("does not own its home {}", home.display())
        }
        Some((home, Ok(found))) if found.mode() & 0o022 != 0 => {
            format!("shares its home {} with others", home.display())
        }
        Some((home, Ok(_))) => return Ok(home.join(BELOW_HOME)),
    };
    let remedy = "name a directory that only this user can write to, the same for every program that shares these \
                  locks: LEASEHOLD_URL=file:DIR";
    Err(Trouble::new(
        ErrorKind::Denied,
        format!(
            "file: alone is a directory below the user's home, and the user {user} {why}; {remedy}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n\
                          bob:x:1001:1001::/home/bob:/bin/sh\n";

    #[test]
    fn the_home_is_the_one_of_the_user_whatever_the_environment_says() {
        assert_eq!(home_in(PASSWD, 1000), Some("/home/ann".into()));
        assert_eq!(home_in(PASSWD, 1001), Some("/home/bob".into()));
        assert_eq!(home_in(PASSWD, 7), None);
    }

    #[test]
    fn only_a_home_that_no_other_user_can_change_will_do() {
        let home = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let refused = |home: Option<&Path>, user| {
            let error = below(home, user)
                .unwrap_err()
                .at(crate::error::Step::Connect);
            assert_eq!(error.kind(), ErrorKind::Denied);
            let text = error.to_string();
            assert!(text.contains("LEASEHOLD_URL=file:DIR"), "{text}");
            text
        };
        let found = below(Some(home.path()), me).unwrap();
        assert_eq!(found, home.path().join(".local/state/leasehold"));
        assert!(refused(Some(home.path()), me + 1).contains("does not own"));
        assert!(refused(Some(Path::new("/nonexistent")), me).contains("/nonexistent"));
        assert!(refused(None, me).contains("no home"));
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(refused(Some(home.path()), me).contains("shares its home"));
    }
}
