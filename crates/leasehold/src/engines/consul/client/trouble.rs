//! Why a request failed.

/// Why a request did not do what it was meant to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines::consul) enum Trouble {
    /// Nothing has happened, and the same request may succeed later: no connection, too many requests, no leader.
    Later(String),
    /// The request may or may not have happened.
    Unknown(String),
    /// A condition of the request did not hold; nothing has happened. The number is the operation's in its transaction.
    Failed(usize, String),
    /// The token does not allow it.
    Denied(String),
    /// The server refused it for another reason; nothing has happened.
    Refused(String),
    /// The session is over.
    Dead(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Later(why)
            | Self::Unknown(why)
            | Self::Failed(_, why)
            | Self::Denied(why)
            | Self::Refused(why)
            | Self::Dead(why) => f.write_str(why),
        }
    }
}

pub(in crate::engines::consul) type Answer<T> = Result<T, Trouble>;

/// What the server calls a session that it does not have (any more).
const NO_SESSION: &str = "invalid session";

/// The meaning of an answer that is not 200 or 404. `rule` is the ACL rule that the request needs.
pub(super) fn refusal(status: u16, body: &str, rule: &str) -> Trouble {
    // The first line: what follows may be long, and is for the server's operators.
    let said = body.trim().lines().next().unwrap_or("").trim();
    match status {
        401 | 403 => Trouble::Denied(format!(
            "Consul denies it to this token ({said}): the token needs the rule {rule}"
        )),
        _ if said.contains(NO_SESSION) => Trouble::Dead("Consul has ended the session".to_owned()),
        429 | 503 => Trouble::Later(format!("Consul takes no more requests now ({said})")),
        // The agent has not passed the request on.
        500 if said.starts_with("No cluster leader") => {
            Trouble::Later("Consul has no leader now".to_owned())
        }
        500.. => Trouble::Unknown(format!("Consul answers {status}: {said}")),
        _ => Trouble::Refused(format!("Consul refuses the request with {status}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_happened_is_told_from_what_has_not() {
        let refusal = |status, body| refusal(status, body, "RULE");
        assert!(matches!(refusal(429, "x"), Trouble::Later(_)));
        assert!(matches!(refusal(503, ""), Trouble::Later(_)));
        assert!(matches!(
            refusal(500, "No cluster leader"),
            Trouble::Later(_)
        ));
        let lost = "leadership lost while committing log";
        assert!(matches!(refusal(500, lost), Trouble::Unknown(_)));
        let ended = r#"invalid session "5f""#;
        assert!(matches!(refusal(500, ended), Trouble::Dead(_)));
        assert!(matches!(refusal(400, "what?"), Trouble::Refused(_)));
        let denied = refusal(403, "Permission denied").to_string();
        assert!(denied.contains("RULE"), "{denied}");
    }
}
