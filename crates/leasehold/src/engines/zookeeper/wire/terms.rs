//! What is said of requests and answers.

use std::future::Future;
use std::pin::Pin;

/// Why a request did not do what it was meant to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines::zookeeper) enum Trouble {
    /// The node, or the parent of a node to create, is not there.
    NoNode,
    /// A node of that name is there.
    Exists,
    /// The server does not let us.
    Denied(String),
    /// The server said no, for another reason.
    Refused(String),
    /// It may or may not have happened.
    Unknown(String),
    /// The session is over.
    Dead(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoNode => f.write_str("the node is not there"),
            Self::Exists => f.write_str("the node is there already"),
            Self::Denied(why) | Self::Refused(why) | Self::Unknown(why) | Self::Dead(why) => {
                f.write_str(why)
            }
        }
    }
}

pub(in crate::engines::zookeeper) type Answer<T> = Result<T, Trouble>;

/// What a watch saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engines::zookeeper) enum Seen {
    /// The watched node was deleted.
    Deleted,
    /// Something else happened; look again.
    Changed,
}

/// Resolves once, when the watched thing changes or the session ends.
pub(in crate::engines::zookeeper) type Watch = Pin<Box<dyn Future<Output = Seen> + Send + Sync>>;

/// What is known of a node besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engines::zookeeper) struct Facts {
    /// The number of the change that made it; only grows.
    pub(in crate::engines::zookeeper) czxid: i64,
    /// When it was made, in milliseconds of the server's wall clock.
    pub(in crate::engines::zookeeper) ctime: i64,
    /// The session it belongs to.
    pub(in crate::engines::zookeeper) owner: i64,
}

/// What the session's connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engines::zookeeper) enum Line {
    Up,
    Down,
    Over,
}
