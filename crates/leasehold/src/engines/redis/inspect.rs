//! `inspect` and `evict` in every layout: names found on a server, and the trace of an eviction.

use std::collections::BTreeSet;

use super::client::{Call, Reply, Server};
use super::error::Trouble;
use crate::engine::Identity;
use crate::name::Name;

/// The names of the keys that look like this. A key that is there all the time is found; one that comes or goes
/// meanwhile may be.
pub(super) async fn names(
    link: &Server,
    pattern: &str,
    name: impl Fn(&str) -> Option<Name>,
) -> Result<BTreeSet<Name>, Trouble> {
    let (mut cursor, mut names) = ("0".to_owned(), BTreeSet::new());
    loop {
        let scan = Call::new("SCAN").arg(&cursor).arg("MATCH").arg(pattern);
        let scan = scan.arg("COUNT").arg("1000");
        let reply = link.send(&[scan]).await?.pop().unwrap_or(Reply::Nil);
        let [next, found]: [Reply; 2] = reply.list()?.try_into().map_err(Trouble::strange)?;
        for key in found.list()? {
            names.extend(name(&key.text()?));
        }
        cursor = next.text()?;
        if cursor == "0" {
            return Ok(names);
        }
    }
}

/// How many evictions are remembered.
const TRACES: &str = "1000";

/// Notes an eviction: the losers (by their fences, or as owners), the evictor and the reason.
pub(super) fn eviction(
    key: &str,
    name: &Name,
    lost: (&str, &[String]),
    by: &Identity,
    why: &str,
) -> Call {
    let stream = Call::new("XADD").arg(key);
    let entry = stream.arg("MAXLEN").arg("~").arg(TRACES).arg("*");
    let entry = entry.arg("name").arg(name.as_str());
    let entry = entry.arg(lost.0).arg(lost.1.join(","));
    entry.arg("by").arg(by.to_string()).arg("why").arg(why)
}
