//! One failure after the other, each brought about step by step: which request stands still, which process dies, and when.
//!
//! The expiry of a lock made by hand is not waited for: where one passes, the key is told to end at once. A request that stands
//! still does so for as long as the next steps take, so nothing depends on how fast the machine is.

pub mod by_hand;
pub mod leasehold;

use hyper::{Method, StatusCode};
use leasehold_testkit::poll::until;
use tokio::task::JoinHandle;

use super::fleet::{Fleet, Servers};
use super::http::{Client, Reply};
use crate::switch::Switch;
use crate::ways::key;

/// What was brought about, and what was seen.
#[derive(Debug)]
pub struct Failure {
    /// The way.
    pub way: &'static str,
    /// What was done.
    pub done: &'static str,
    /// What was seen.
    pub seen: String,
}

/// Two instances, and an item with a hundred pieces.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The servers.
    pub servers: &'a Servers,
    /// The instances.
    pub fleet: &'a mut Fleet,
    item: u64,
    way: &'static str,
}

/// A request that is on its way.
pub type Sent = JoinHandle<Result<Reply, String>>;

const STOCK: i64 = 100;

impl<'a> Stage<'a> {
    /// Fills an item, whose number is new.
    pub fn new(servers: &'a Servers, fleet: &'a mut Fleet, item: u64, way: &'static str) -> Self {
        let path = format!("/items/{item}/{way}?left={STOCK}");
        let filled = fleet.send(Method::PUT, &path);
        assert_eq!(filled.status, StatusCode::OK, "{filled}");
        Self {
            servers,
            fleet,
            item,
            way,
        }
    }

    /// Sends a request with a switch to an instance, and does not wait for it.
    pub fn send(&self, instance: usize, switch: &str) -> Sent {
        let port = self.fleet.instances[instance].port;
        let path = format!("/items/{}/{}?{switch}", self.item, self.way);
        let sent = async move { Client::new(port).send(Method::POST, &path).await };
        self.fleet.runtime.spawn(sent)
    }

    /// Sends a request that stands still at a point under a name, and waits until it does.
    pub fn pause(&self, instance: usize, at: &str, name: &str) -> Sent {
        let sent = self.send(instance, &format!("pause={at}&as={}", self.named(name)));
        self.wait_for("it stands still", &Switch::paused(&self.named(name)), true);
        sent
    }

    /// Lets a request go on, and waits for its reply.
    ///
    /// # Panics
    /// If there is none.
    pub fn go_on(&self, name: &str, sent: Sent) -> StatusCode {
        self.let_go(name);
        self.reply(sent).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Lets a request go on.
    pub fn let_go(&self, name: &str) {
        let _ = self.redis(&["SET", &Switch::go(&self.named(name)), "1"]);
    }

    /// The reply of a request.
    ///
    /// # Errors
    /// In words, if the process died.
    pub fn reply(&self, sent: Sent) -> Result<StatusCode, String> {
        let reply = self.fleet.runtime.block_on(sent);
        Ok(reply.expect("no request panics")?.status)
    }

    /// A request to an instance, and its reply.
    ///
    /// # Panics
    /// If there is none.
    pub fn buy(&self, instance: usize) -> StatusCode {
        let sent = self.send(instance, "");
        self.reply(sent).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends a request to the first instance that kills it at a point, waits until it is gone, and starts it again.
    pub fn crash(&mut self, at: &str) {
        let sent = self.send(0, &format!("crash={at}"));
        let reply = self.reply(sent);
        assert!(reply.is_err(), "the process was to die: {reply:?}");
        self.gone();
        self.fleet.restart(0);
    }

    /// Waits until the process of the first instance is gone.
    pub fn gone(&self) {
        let process = self.fleet.instances[0].process();
        until("the process is gone", || {
            let there = process.is_running();
            (!there).then_some(()).ok_or("it is there".to_owned())
        });
    }

    /// Lets the expiry of the lock pass.
    pub fn expire(&self) {
        let key = key(self.item);
        let _ = self.redis(&["PEXPIRE", &key, "1"]);
        self.wait_for("the lock has ended", &key, false);
    }

    /// How long the lock still lasts, as Redis says: -1 is for ever, -2 is no lock.
    pub fn ends(&self) -> String {
        self.redis(&["PTTL", &key(self.item)])
    }

    /// Whose the lock is.
    pub fn holder(&self) -> String {
        self.redis(&["GET", &key(self.item)])
    }

    /// Pieces that were sold and are still there.
    ///
    /// # Panics
    /// If the books cannot be read.
    pub fn oversold(&self) -> i64 {
        let path = format!("/items/{}/{}", self.item, self.way);
        let books = self.fleet.send(Method::GET, &path).json();
        let number = |field: &str| books[field].as_i64().expect("a number");
        number("left") + number("sold") - STOCK
    }

    fn named(&self, name: &str) -> String {
        format!("{}-{name}", self.item)
    }

    fn redis(&self, words: &[&str]) -> String {
        self.servers.redis.cli_args(words).trim().to_owned()
    }

    fn wait_for(&self, what: &str, key: &str, there: bool) {
        until(what, || match self.redis(&["EXISTS", key]) {
            seen if seen == u8::from(there).to_string() => Ok(()),
            seen => Err(format!("EXISTS {key}: {seen}")),
        });
    }
}
