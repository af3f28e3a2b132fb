//! What an eviction leaves behind: an entry in a stream.

use super::client::Call;
use crate::engine::Identity;
use crate::name::Name;

/// How many evictions are remembered.
const TRACES: &str = "1000";

/// Notes who lost a name (by their fences, or as owners), by whom and why.
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
