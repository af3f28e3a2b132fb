//! A TCP proxy that delays, holds back, cuts and resets.
//!
//! It works in units of what one `read` brings, which for a protocol of requests and answers on the loopback device
//! is one message or a few that were sent together.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use crate::told::{Between, Told};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The fate of the bytes that go one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// They arrive.
    #[default]
    Pass,
    /// They arrive later, together with those that came meanwhile: a distance, not a narrow road.
    Delay(Duration),
    /// They do not arrive while this lasts; afterwards they do, as TCP repeats them.
    Hold,
    /// Every connection is reset before they arrive.
    Reset,
}

/// A proxy before one port of this machine. Dropping it ends its connections.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect.
    pub port: u16,
    shared: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Mutex<Plan>,
    changed: Condvar,
    over: AtomicBool,
    /// Messages that arrived, by way.
    passed: [AtomicU64; 2],
    open: Mutex<Vec<(u64, TcpStream)>>,
    opened: AtomicU64,
    /// The port of the server.
    server: AtomicU16,
    /// Words of a client by which connections are chosen.
    words: Mutex<Vec<Vec<u8>>>,
    /// The connections on which one of the words was said.
    chosen: Mutex<Vec<u64>>,
    /// The ports of other servers as its clients are told them.
    told: Mutex<Option<Told>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Plan {
    fates: [Fate; 2],
    /// After so many more messages one way, this happens.
    later: Option<(Way, u64, Fate)>,
    /// Only on this connection.
    only: Only,
}

/// The connections that a plan is for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Only {
    #[default]
    All,
    /// Those on which one of the words was said. A client that looks at a name on one connection may change it on another.
    Words,
}

impl Proxy {
    /// A proxy before a port of the loopback address.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::<State>::default();
        shared.server.store(server, Ordering::SeqCst);
        let state = shared.clone();
        drop(std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if state.over.load(Ordering::SeqCst) {
                    return;
                }
                connect(&state, client, state.server.load(Ordering::SeqCst));
            }
        }));
        Self { port, shared }
    }

    /// Sets the fate of one way from now on.
    pub fn set(&self, way: Way, fate: Fate) {
        self.change(|plan| {
            plan.fates[way as usize] = fate;
            plan.later = None;
        });
    }

    /// Sets the fate of both ways from now on.
    pub fn set_both(&self, fate: Fate) {
        self.set(Way::ToServer, fate);
        self.set(Way::ToClient, fate);
    }

    /// Lets so many messages pass one way; the next one, and all after it, meet this fate.
    pub fn after(&self, way: Way, messages: u64, fate: Fate) {
        self.change(|plan| {
            plan.later = Some((way, messages, fate));
            plan.only = Only::All;
        });
    }

    /// The same, counted only on connections on which a client says one of these words, on each from that message on.
    pub fn after_words(&self, words: &[Vec<u8>], way: Way, messages: u64, fate: Fate) {
        self.change(|plan| {
            *lock(&self.shared.words) = words.to_vec();
            lock(&self.shared.chosen).clear();
            plan.later = Some((way, messages, fate));
            plan.only = Only::Words;
        });
    }

    /// Whether what was asked for by [`after`](Self::after) has not happened yet.
    pub fn is_armed(&self) -> bool {
        lock(&self.shared.plan).later.is_some()
    }

    /// Whether the fate of [`after`](Self::after) is still to come.
    pub fn is_planned(&self) -> bool {
        lock(&self.shared.plan).later.is_some()
    }

    /// How many messages have arrived one way.
    pub fn passed(&self, way: Way) -> u64 {
        self.shared.passed[way as usize].load(Ordering::SeqCst)
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> u64 {
        self.shared.opened.load(Ordering::SeqCst)
    }

    /// Resets every connection there is now. New ones are let through.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Another server has this address from now on, as after a failover: connections to the old one are reset.
    pub fn turn_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::SeqCst);
        self.shared.reset();
    }

    /// The server tells the ports of other servers, in RESP: its clients are told these instead, the proxies'. For
    /// connections from now on.
    pub fn tell(&self, ports: &[(u16, u16)]) {
        *lock(&self.shared.told) = Some(Told::new(ports));
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut lock(&self.shared.plan));
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.change(|plan| *plan = Plan::default());
        self.shared.reset();
        // Wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn reset(&self) {
        for (_, stream) in lock(&self.open).drain(..) {
            // Unread and unsent bytes are thrown away, and the other side sees a reset.
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether a message counts.
    fn counts(&self, only: Only, way: Way, connection: u64, message: &[u8]) -> bool {
        if only == Only::All {
            return true;
        }
        let mut chosen = lock(&self.chosen);
        let said = |word: &Vec<u8>| message.windows(word.len()).any(|part| part == word);
        if way == Way::ToServer && lock(&self.words).iter().any(said) {
            chosen.push(connection);
        }
        chosen.contains(&connection)
    }

    fn delays(&self, way: Way) -> bool {
        matches!(lock(&self.plan).fates[way as usize], Fate::Delay(_))
    }

    /// Waits until a message may go on; false if its connection is over.
    fn admit(&self, way: Way, connection: u64, message: &[u8]) -> bool {
        let mut plan = lock(&self.plan);
        let counts = self.counts(plan.only, way, connection, message);
        if let Some((on, left, fate)) = plan.later
            && on == way
            && counts
        {
            plan.later = left.checked_sub(1).map(|left| (on, left, fate));
            if left == 0 {
                plan.fates[way as usize] = fate;
                if fate == Fate::Reset {
                    // Once: the next connection is let through.
                    plan.fates[way as usize] = Fate::Pass;
                    drop(plan);
                    self.reset();
                    return false;
                }
            }
        }
        loop {
            match plan.fates[way as usize] {
                Fate::Pass => return true,
                Fate::Delay(by) => {
                    drop(plan);
                    pause(by);
                    return true;
                }
                Fate::Reset => {
                    drop(plan);
                    self.reset();
                    return false;
                }
                Fate::Hold => {
                    plan = self
                        .changed
                        .wait(plan)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a delay is what was asked for")]
fn pause(by: Duration) {
    std::thread::sleep(by);
}

fn connect(state: &Arc<State>, client: TcpStream, server: u16) {
    let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server))) else {
        return;
    };
    let connection = state.opened.load(Ordering::SeqCst);
    for (way, from, to) in [
        (Way::ToServer, &client, &server),
        (Way::ToClient, &server, &client),
    ] {
        let _ = from.set_nodelay(true);
        let (Ok(from), Ok(to), Ok(copy)) = (from.try_clone(), to.try_clone(), from.try_clone())
        else {
            return;
        };
        let id = state.opened.fetch_add(1, Ordering::SeqCst);
        lock(&state.open).push((id, copy));
        let state = state.clone();
        drop(std::thread::spawn(move || {
            pump(&state, (way, connection), from, to);
            lock(&state.open).retain(|(open, _)| *open != id);
        }));
    }
}

fn pump(state: &State, (way, connection): (Way, u64), mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    let told = match way {
        Way::ToServer => None,
        Way::ToClient => lock(&state.told).clone(),
    };
    let mut between = Between::default();
    while let Ok(mut read @ 1..) = from.read(&mut buffer) {
        let mut passed = state.admit(way, connection, &buffer[..read]);
        if passed {
            while state.delays(way)
                && let Ok((more @ 1.., _)) = recv(&from, &mut buffer[read..], RecvFlags::DONTWAIT)
            {
                read += more;
            }
            passed = match &told {
                None => to.write_all(&buffer[..read]),
                Some(told) => to.write_all(&told.tell(&mut between, &buffer[..read])),
            }
            .is_ok();
        }
        if !passed {
            break;
        }
        let _ = state.passed[way as usize].fetch_add(1, Ordering::SeqCst);
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::until;

    /// Says back what it hears.
    fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                drop(std::thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().expect("a copy"), stream);
                    std::io::copy(&mut from, &mut to)
                }));
            }
        }));
        port
    }

    fn client(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port)).expect("connected")
    }

    fn say(stream: &mut TcpStream) -> std::io::Result<usize> {
        stream.write_all(b"x")?;
        stream.read(&mut [0; 8])
    }

    #[test]
    fn passes_holds_and_goes_on() {
        let proxy = Proxy::before(echo());
        let mut stream = client(&proxy);
        assert_eq!(say(&mut stream).expect("an echo"), 1);
        proxy.set(Way::ToClient, Fate::Hold);
        stream.write_all(b"y").expect("sent");
        until("the server's side got it", || {
            match proxy.passed(Way::ToServer) {
                2 => Ok(()),
                passed => Err(format!("{passed} passed")),
            }
        });
        assert_eq!(proxy.passed(Way::ToClient), 1);
        proxy.set(Way::ToClient, Fate::Pass);
        assert_eq!(stream.read(&mut [0; 8]).expect("late"), 1);
    }

    #[test]
    fn counts_on_connections_where_a_word_is_said() {
        let proxy = Proxy::before(echo());
        proxy.after_words(&[b"stop".to_vec()], Way::ToClient, 1, Fate::Reset);
        let (mut meant, mut other) = (client(&proxy), client(&proxy));
        let mut looks = client(&proxy);
        assert_eq!(say(&mut other).expect("not meant"), 1);
        assert_eq!(say(&mut meant).expect("not yet"), 1);
        looks.write_all(b"stop?").expect("sent");
        assert!(
            looks.read(&mut [0; 8]).is_ok_and(|read| read > 0),
            "the first passes"
        );
        meant.write_all(b"now stop").expect("sent");
        assert!(!matches!(meant.read(&mut [0; 8]), Ok(1..)), "it is cut");
        assert!(!proxy.is_armed());
    }

    #[test]
    fn resets_after_so_many_messages() {
        let proxy = Proxy::before(echo());
        proxy.after(Way::ToClient, 1, Fate::Reset);
        let mut stream = client(&proxy);
        assert_eq!(say(&mut stream).expect("the first passes"), 1);
        assert!(proxy.is_armed());
        assert!(!matches!(say(&mut stream), Ok(1..)), "the second does not");
        assert!(!proxy.is_armed());
        assert_eq!(say(&mut client(&proxy)).expect("a new connection"), 1);
    }
}
