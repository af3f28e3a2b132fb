//! Requests leave at once.
//!
//! The client crate leaves Nagle's algorithm on: of two requests that leave together the kernel keeps the second until
//! the first is answered, and what should be one round trip is two. The crate shows its sockets to nobody, so they are
//! found among those of this process, by the port they lead to. Only speed depends on it.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::{getpeername, sockopt};

/// Turns it off for the connections of this process to these ports.
pub(super) fn send_at_once(ports: &[u16]) {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number: &i32| *number > 2) {
        #[expect(unsafe_code, reason = "nobody lends this descriptor")]
        // SAFETY: the two calls below are all that is done with it. If it was closed meanwhile they fail, and if it is
        // something else by now, it is left alone unless it is a connection to one of these ports.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(socket).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| ports.contains(&peer.port())) {
            let _ = sockopt::set_tcp_nodelay(socket, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_connections_to_that_port_are_changed() {
        let [ours, other] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
        let connect = |to| TcpStream::connect(("127.0.0.1", port(to))).expect("connected");
        let streams = [connect(&ours), connect(&other)];
        send_at_once(&[port(&ours)]);
        let at_once = streams.map(|stream| stream.nodelay().expect("an option"));
        assert_eq!(at_once, [true, false]);
    }
}
