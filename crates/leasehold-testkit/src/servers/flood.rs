//! A server that sends without an end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server that greets as it should, and then sends the same bytes until its client goes.
#[derive(Debug)]
pub struct Flood {
    port: u16,
    sent: Arc<AtomicU64>,
}

impl Flood {
    /// Listens. `greet` is run on each connection before it is flooded with `again`.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(
        greet: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
        again: Vec<u8>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (sent, shared) = (Arc::<AtomicU64>::default(), Arc::new((greet, again)));
        let counted = sent.clone();
        drop(std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (shared, counted) = (shared.clone(), counted.clone());
                drop(std::thread::spawn(move || {
                    let (greet, again) = &*shared;
                    let mut sending = greet(&mut stream);
                    let mut taken = 0;
                    while sending.is_ok() {
                        sending = stream.write_all(again);
                        taken += again.len() as u64;
                        let _ = counted.fetch_max(taken, Ordering::SeqCst);
                    }
                    let _ = stream.read_to_end(&mut Vec::new());
                }));
            }
        }));
        Self { port, sent }
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The least that the client has read of one connection: what it took, less what the kernel may hold of that.
    pub fn read_at_least(&self) -> u64 {
        let sent = self.sent.load(Ordering::SeqCst);
        sent.saturating_sub(largest("tcp_wmem") + largest("tcp_rmem"))
    }
}

/// The largest buffer of a socket, of which a machine with a fast network has set some ten megabytes.
fn largest(buffer: &str) -> u64 {
    let path = format!("/proc/sys/net/ipv4/{buffer}");
    let sizes = std::fs::read_to_string(path).expect("the sizes of buffers");
    let last = sizes.split_whitespace().next_back();
    last.expect("three sizes").parse().expect("a size")
}
