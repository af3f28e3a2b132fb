//! Looking for names on a server.

use std::collections::BTreeSet;

use super::client::{Call, Reply, Server};
use super::error::Trouble;
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
