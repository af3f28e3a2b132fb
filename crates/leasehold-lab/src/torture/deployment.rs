//! What a torture locks in. An engine with a server adds a variant that can start, kill, pause and restart it.

use std::path::Path;

use crate::Outcome;

/// Something to lock in, and what can be done to it.
pub trait Deployment: std::fmt::Debug + Send {
    /// What workers connect to; stays the same over restarts.
    fn url(&self) -> String;

    /// Whether there is a server to be hit.
    fn has_server(&self) -> bool;

    /// Kills the server as `kill -9` does.
    ///
    /// # Errors
    /// If there is none, or it cannot be killed.
    fn kill(&mut self) -> Outcome<()>;

    /// Starts it again with what it kept on disk, and waits until it answers.
    ///
    /// # Errors
    /// If it does not come back.
    fn restart(&mut self) -> Outcome<()>;

    /// Stops the server without ending it.
    ///
    /// # Errors
    /// If there is none.
    fn pause(&mut self) -> Outcome<()>;

    /// Lets it go on.
    ///
    /// # Errors
    /// If there is none.
    fn resume(&mut self) -> Outcome<()>;
}

/// An engine without a server, or one that somebody else keeps.
#[derive(Debug)]
struct Serverless(String);

const NO_SERVER: &str = "there is no server of ours to be hit";

impl Deployment for Serverless {
    fn url(&self) -> String {
        self.0.clone()
    }

    fn has_server(&self) -> bool {
        false
    }

    fn kill(&mut self) -> Outcome<()> {
        Err(NO_SERVER.into())
    }

    fn restart(&mut self) -> Outcome<()> {
        Err(NO_SERVER.into())
    }

    fn pause(&mut self) -> Outcome<()> {
        Err(NO_SERVER.into())
    }

    fn resume(&mut self) -> Outcome<()> {
        Err(NO_SERVER.into())
    }
}

/// What a URL or an engine's word means: `file:` alone is a fresh directory below `into`.
///
/// # Errors
/// If there is no such engine, or its server cannot be started.
pub fn deployment(url: &str, into: &Path) -> Outcome<Box<dyn Deployment>> {
    if url == "file:" || url == "file" {
        let dir = into.join("locks");
        return Ok(Box::new(Serverless(format!("file:{}", dir.display()))));
    }
    if url.starts_with("memory:") {
        return Err("memory: is one process; `simulation` tests cover it".into());
    }
    Ok(Box::new(Serverless(url.to_owned())))
}
