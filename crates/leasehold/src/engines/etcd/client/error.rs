//! What can go wrong between us and etcd.

use std::fmt;

use tonic::{Code, Status};

pub(in crate::engines::etcd) type Answer<T> = Result<T, Trouble>;

pub(super) const CUT: &str = "the connection was lost";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines::etcd) enum Trouble {
    /// The connection, or the member behind it, is of no use now. The request may have been done.
    Unknown(String),
    /// The server is busy: nothing was done.
    Busy(String),
    /// The lease does not exist, or this client is closed.
    Dead(String),
    /// The login is wrong, or has no right.
    Denied(String),
    /// The server refuses, and will refuse again.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unknown(why)
        | Self::Busy(why)
        | Self::Dead(why)
        | Self::Denied(why)
        | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        let said = match status.message() {
            "" => status.code().description().to_owned(),
            // Whichever is seen first, the end of the connection or that of a request on it.
            "http2 error" => CUT.to_owned(),
            said => said.to_owned(),
        };
        match status.code() {
            Code::NotFound if said.contains("lease") => Self::Dead(said),
            Code::PermissionDenied => Self::Denied(format!(
                "{said}: the user needs the right to read and write (readwrite) keys that begin with the prefix of the URL"
            )),
            Code::InvalidArgument if said.contains("user name is empty") => Self::Denied(
                "the server asks for a login: write etcd://USER:PASSWORD@HOST".to_owned(),
            ),
            Code::InvalidArgument if said.contains("authentication failed") => {
                Self::Denied("the server does not know this user and password".to_owned())
            }
            // Users or their rights have changed since the login: the next connection logs in again.
            Code::InvalidArgument if said.contains("auth store is old") => Self::Unknown(said),
            Code::ResourceExhausted if said.contains("too many requests") => Self::Busy(said),
            Code::Unimplemented => Self::Refused(format!(
                "{said}: this is no etcd with the v3 API (3.4 or later is needed)"
            )),
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::ResourceExhausted => Self::Refused(said),
            // A token that has run out is renewed with the connection.
            _ => Self::Unknown(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_the_request_may_have_been_done() {
        let of = |code, said: &str| Trouble::from(Status::new(code, said));
        let lease = of(Code::NotFound, "etcdserver: requested lease not found");
        assert!(matches!(lease, Trouble::Dead(_)));
        for (code, said) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::Unknown, "transport error"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::Internal, "h2 protocol error"),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
            ),
        ] {
            assert!(matches!(of(code, said), Trouble::Unknown(_)), "{said}");
        }
        let busy = of(Code::ResourceExhausted, "etcdserver: too many requests");
        assert!(matches!(busy, Trouble::Busy(_)));
        let full = of(Code::ResourceExhausted, "mvcc: database space exceeded");
        assert!(matches!(full, Trouble::Refused(_)));
        let denied = of(Code::InvalidArgument, "etcdserver: user name is empty");
        assert!(matches!(denied, Trouble::Denied(_)));
    }
}
