//! Fences, processes and evictions as every layout writes them.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::Trouble;
use crate::engine::Identity;
use crate::fence::Fence;

/// The largest fence that the script gives: Lua counts in doubles.
pub(super) const MOST: u64 = (1 << 53) - 1;

/// A fence as a server told it.
pub(super) fn fence(number: u64) -> Result<Fence, Trouble> {
    let bounded = Fence::bounded(number, MOST);
    bounded.ok_or_else(|| Trouble::Strange(format!("the fence {number}, above 2^53")))
}

/// The claiming process as it is stored: host and command may hold spaces, a process id does not.
pub(super) fn who_text(who: &Identity) -> String {
    format!("{}\n{}\n{}", who.pid, who.host, who.command)
}

/// The claiming process as it was stored; cut, because another program may have written it.
pub(super) fn who(text: &str) -> Option<Identity> {
    let mut parts = text.splitn(3, '\n');
    let pid = parts.next()?.parse().ok()?;
    let mut cut = || -> Option<String> { Some(parts.next()?.chars().take(LONGEST_WORD).collect()) };
    let (host, command) = (cut()?, cut()?);
    Some(Identity::new(host, pid, command))
}

/// Longer hosts and commands are not shown.
const LONGEST_WORD: usize = 1_000;

/// The message to an evicted holder.
pub(super) fn eviction(by: &str, why: &str) -> String {
    let text = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    format!("{} {}", text(by), text(why))
}
