//! Why a request failed.

/// Why a request did not do what it was meant to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines::zookeeper) enum Trouble {
    /// The node, or the parent of a node to create, does not exist.
    NoNode,
    /// A node of that name exists.
    Exists,
    /// The server denies it to this login.
    Denied(String),
    /// The server refused it for another reason; nothing has happened.
    Refused(String),
    /// The connection was lost: the request may or may not have happened.
    Unknown(String),
    /// The session is over.
    Dead(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoNode => f.write_str("the node does not exist"),
            Self::Exists => f.write_str("the node exists already"),
            Self::Denied(why) | Self::Refused(why) | Self::Unknown(why) | Self::Dead(why) => {
                f.write_str(why)
            }
        }
    }
}

pub(in crate::engines::zookeeper) type Answer<T> = Result<T, Trouble>;

/// The bytes that came are not what the protocol allows.
pub(super) fn senseless() -> Trouble {
    Trouble::Unknown("the answer is not one of ZooKeeper's protocol".to_owned())
}

pub(super) fn lost() -> Trouble {
    Trouble::Unknown("the connection was lost".to_owned())
}

pub(super) fn dead(why: &str) -> Trouble {
    Trouble::Dead(why.to_owned())
}

/// The meaning of an error code of the server.
pub(super) fn refusal(code: i32) -> Trouble {
    let refused = |why: &str| Trouble::Refused(format!("the server refuses the request: {why}"));
    match code {
        -101 => Trouble::NoNode,
        -110 => Trouble::Exists,
        -102 => Trouble::Denied("the server's access list denies it to this login".to_owned()),
        -115 => Trouble::Denied("the server does not know this login".to_owned()),
        -112 => dead("the server has ended the session"),
        -5 => refused("the server cannot read the request"),
        -6 => refused("its version does not have this request: use ZooKeeper 3.5 or later"),
        -8 => refused("a path or an argument is not valid"),
        -103 => refused("the node has another version"),
        -108 => refused("the parent is ephemeral"),
        -111 => refused("the node has children"),
        -114 => refused("the access list is not valid"),
        -119 => refused("the server is read-only: it has lost its ensemble"),
        -125 => refused("the quota of the path is used up"),
        code => Trouble::Unknown(format!("the server answers with error {code}")),
    }
}
