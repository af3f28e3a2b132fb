//! etcd beside two bare transactions and the Lock RPC of Go's client: the same server, in turn.

use std::io::{Read, Write};
use std::net::TcpStream;

use leasehold_testkit::peers::go;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::etcd::Etcd;

use crate::Settings;
use crate::measure::{Outcome, Spread, duel};
use crate::memory::one_thread;
use crate::ordered::{self, LOCKERS_EACH, PROCESSES, SHORT, SLICE, cycles, ready};
use crate::table::{Goal, Row};

fn peer(server: &Etcd) -> Process {
    ready(go("etcd").args([&*server.address(), "60"]))
}

/// One locker alone.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let server = Etcd::start();
    let runtime = one_thread()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let mut peer = [peer(&server)];
    let duel = duel(
        settings.many(),
        || Ok(runtime.block_on(runtime.spawn(ordered::alone(client.clone())))??),
        || cycles(&mut peer, "bare bare/key", SHORT),
    )?;
    let name = "etcd uncontended beside two bare Txns";
    Row::ratio(name, "/s", &duel, Goal::AtLeast(0.77)).print();
    Ok(())
}

/// Thirty lockers over two processes on one name.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let server = Etcd::start();
    let mut peers: Vec<_> = (0..PROCESSES).map(|_| peer(&server)).collect();
    for (how, case, goal) in [("strict", "strict", 5.0), ("turns", "with turns", 50.0)] {
        let mut shares = Vec::new();
        let command = format!("rpc contended-rpc {LOCKERS_EACH}");
        let duel = duel(
            settings.repeats,
            || ordered::contended(&server.url(), how, &mut shares),
            || cycles(&mut peers, &command, SLICE),
        )?;
        let name = format!("etcd 2 x 15 {case} beside the Lock RPC");
        Row::ratio(&name, "/s", &duel, Goal::AtLeast(goal)).print();
        let name = format!("etcd 2 x 15 {case}, least by most served");
        Row::alone(&name, "", Spread::of(shares), Goal::AtLeast(0.95)).print();
    }
    Ok(())
}

/// The requests of a hand-over, with few and with many waiters.
pub(crate) fn hand_over(_: &Settings) -> Outcome<()> {
    let server = Etcd::start();
    for waiters in [10, 100, 1000] {
        let (url, requests) = (server.url(), || received(&server.address()));
        let each = ordered::hand_overs(&url, 2, waiters, requests);
        let each = one_thread()?.block_on(each)?;
        let name = format!("etcd requests per hand-over, {waiters} waiters");
        Row::alone(&name, "", Spread::of(vec![each]), Goal::AtMost(4.0)).print();
    }
    Ok(())
}

/// The messages that the server has received from clients.
fn received(address: &str) -> Outcome<f64> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said)?;
    let counts = said
        .lines()
        .filter(|line| line.starts_with("grpc_server_msg_received_total{"));
    let mut total = 0.0;
    for line in counts {
        let count: f64 = line.rsplit(' ').next().unwrap_or("0").parse()?;
        total += count;
    }
    Ok(total)
}
