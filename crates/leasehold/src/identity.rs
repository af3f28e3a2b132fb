//! Which process asks.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// Which process asks for a lock: shown to people by `status`, never used to decide anything.
///
/// It is stored where the locks are, and each user who may look there can read it. So its command is the program's name
/// alone unless the program [says more](Self::with_arguments).
///
/// ```
/// let me = leasehold::Identity::of_this_process();
/// assert_eq!(me.pid, std::process::id());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The program's name, or what the program calls itself.
    pub command: String,
}

/// Longer commands are cut: they are for people.
const COMMAND_MAX: usize = 256;

/// Longer names of machines are cut: no machine has one.
const HOST_MAX: usize = 255;

/// Printed in place of a secret.
const MASK: &str = "***";

/// Parts of the names that secrets have.
const SECRETS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "token",
    "secret",
    "key",
    "auth",
    "credential",
];

impl Identity {
    /// An identity from its parts, as an engine stored it.
    pub fn new(host: impl Into<String>, pid: u32, command: impl Into<String>) -> Self {
        Self {
            host: cut(host.into(), HOST_MAX),
            pid,
            command: cut(command.into(), COMMAND_MAX),
        }
    }

    /// This host, this process, its program's name.
    pub fn of_this_process() -> Self {
        let host = host();
        let program = std::env::args_os().next().unwrap_or_default();
        Self::new(host, std::process::id(), program_name(&program))
    }

    /// The same process under another description.
    #[must_use]
    pub fn called(self, command: impl Into<String>) -> Self {
        Self::new(self.host, self.pid, command)
    }

    /// The same process with a command line. Secrets are masked: logins of URLs, and the words after
    /// `password`, `token`, `secret`, `key` and the like. A secret that looks like none is not found: do not ask for this
    /// where commands have such.
    ///
    /// ```
    /// # use leasehold::Identity;
    /// let words = ["dump", "--to", "mysql://app:hunter2@db/shop", "--api-key=abc", "--password", "xyz"];
    /// let me = Identity::of_this_process().with_arguments(words);
    /// assert_eq!(me.command, "dump --to mysql://***@db/shop --api-key=*** --password ***");
    /// ```
    #[must_use]
    pub fn with_arguments(self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut shown = Vec::new();
        let mut follows_name = false;
        for word in words {
            let word = word.as_ref().to_string_lossy();
            shown.push(match follows_name {
                true => MASK.to_owned(),
                false => masked(&word),
            });
            follows_name = !follows_name && is_option_of_secret(&word);
        }
        self.called(shown.join(" "))
    }
}

/// The last part of a program's path.
fn program_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

fn cut(mut text: String, most: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// `--password`, `-u`, `--user`: the next word is a secret or a login.
fn is_option_of_secret(word: &str) -> bool {
    let named = |name: &&str| word.to_lowercase().contains(*name);
    let option = word.starts_with('-') && !word.contains(['=', ' ']);
    option && (matches!(word, "-u" | "--user") || SECRETS.iter().any(named))
}

/// A word without its logins, and without what follows the name of a secret.
fn masked(word: &str) -> String {
    let parts: Vec<_> = word.split(' ').map(without_login).collect();
    let word = parts.join(" ");
    match secret_at(&word) {
        Some(at) => format!("{}{MASK}", &word[..at]),
        None => word,
    }
}

/// `mysql://app:hunter2@db` without what is before the last `@`, and `-phunter2` without the password.
fn without_login(part: &str) -> String {
    if let Some((login, rest)) = part.rsplit_once('@')
        && login.contains(':')
    {
        let scheme = login.split_once("://").map_or("", |(scheme, _)| scheme);
        let slashes = if scheme.is_empty() { "" } else { "://" };
        return format!("{scheme}{slashes}{MASK}@{rest}");
    }
    match part.strip_prefix("-p") {
        Some(password) if !password.is_empty() => format!("-p{MASK}"),
        _ => part.to_owned(),
    }
}

/// Where the value begins of the first name of a secret in a text.
fn secret_at(text: &str) -> Option<usize> {
    // Of the same length as the text: other characters than ASCII stay as they are.
    let lower = text.to_ascii_lowercase();
    let values = SECRETS.iter().flat_map(|name| {
        let found = lower.match_indices(name);
        found.filter_map(|(at, name)| {
            let rest = &lower[at + name.len()..];
            let name_end = rest.find(|c: char| !(c.is_alphanumeric() || "_-.\"'".contains(c)))?;
            let separator = rest[name_end..].starts_with(['=', ':']);
            separator.then_some(at + name.len() + name_end + 1)
        })
    });
    values.min()
}

/// The name of this machine.
#[cfg(unix)]
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// The name of this machine.
#[cfg(windows)]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(words: &[&str]) -> String {
        let who = Identity::new("host", 1, "");
        who.with_arguments(words).command
    }

    #[test]
    fn a_process_is_its_program_and_no_argument() {
        let me = Identity::of_this_process();
        assert!(!me.command.is_empty() && !me.command.contains(['/', ' ']));
        assert_eq!(program_name(OsStr::new("/usr/bin/backup")), "backup");
    }

    #[test]
    fn a_text_without_a_secret_is_shown_as_it_is() {
        let words = ["rsync", "-a", "--delete", "/srv/", "host:/backup/", "a@b"];
        assert_eq!(shown(&words), words.join(" "));
    }

    #[test]
    fn long_parts_are_cut() {
        let long = "é".repeat(70_000);
        let who = Identity::new(long.clone(), 1, long);
        assert_eq!(who.host.chars().count(), HOST_MAX + 1);
        assert_eq!(who.command.chars().count(), COMMAND_MAX + 1);
    }

    proptest! {
        /// However a secret is written down, it is not shown.
        #[test]
        fn no_secret_is_shown(secret in "[A-Z0-9]{8,20}", before in "[a-z]{0,6}", after in "[a-z0-9_-]{0,6}") {
            for name in SECRETS {
                for word in [
                    format!("--{before}{name}{after}={secret}"),
                    format!("{before}{}{after}={secret}", name.to_uppercase()),
                    format!("{{\"{before}{name}\":\"{secret}\"}}"),
                    format!("https://host/{before}?a=b&{name}={secret}&c=d"),
                    format!("{before} {name}: x {secret}"),
                ] {
                    let shown = shown(&["sh", "-c", &word]);
                    prop_assert!(!shown.contains(&secret), "{word} -> {shown}");
                }
                let option = format!("--{before}{name}{after}");
                prop_assert!(!shown(&["x", &option, &secret]).contains(&secret), "{option}");
            }
            for word in [
                format!("redis://:{secret}@host:1/2"),
                format!("postgres://{before}:{secret}@a,b/c?d=e"),
                format!("mysql://u:a/b@{secret}?x@host/db"),
                format!("psql 'redis:app:{secret}@host' {after}"),
                format!("-p{secret}"),
            ] {
                let shown = shown(&["x", &word]);
                prop_assert!(!shown.contains(&secret), "{word} -> {shown}");
            }
            let login = format!("{before}:{secret}");
            prop_assert!(!shown(&["curl", "-u", &login]).contains(&secret), "{login}");
        }
    }
}
