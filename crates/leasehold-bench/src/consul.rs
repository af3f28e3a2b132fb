//! Consul beside two bare transactions and Go's `api.Lock`: the same server, in turn.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_testkit::peers::go;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::consul::Consul;

use crate::Settings;
use crate::measure::{Outcome, Spread, duel};
use crate::memory::one_thread;
use crate::ordered::{self, LOCKERS_EACH, PROCESSES, SHORT, SLICE, cycles, ready};
use crate::table::{Goal, Row};

const WAITERS: usize = 20;

fn peer(server: &Consul) -> Process {
    ready(go("consul").args([&*server.address(), "60s"]))
}

/// One locker alone.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let server = Consul::start();
    let runtime = one_thread()?;
    let url = server.url();
    for (url, case) in [
        (url.clone(), "uncontended"),
        (format!("{url}?layout=consul"), "layout=consul"),
    ] {
        let client = runtime.block_on(leasehold::connect(&url))?;
        let mut peer = [peer(&server)];
        let duel = duel(
            settings.many(),
            || Ok(runtime.block_on(runtime.spawn(ordered::alone(client.clone())))??),
            || cycles(&mut peer, "bare bare", SHORT),
        )?;
        let name = format!("consul {case} beside two bare txns");
        Row::ratio(&name, "/s", &duel, Goal::AtLeast(0.77)).print();
    }
    Ok(())
}

/// Thirty lockers over two processes on one name.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let server = Consul::start();
    let mut peers: Vec<_> = (0..PROCESSES).map(|_| peer(&server)).collect();
    let command = format!("cycles contended-go {LOCKERS_EACH}");
    for (how, case) in [("strict", "strict"), ("turns", "with turns")] {
        let mut shares = Vec::new();
        let duel = duel(
            settings.repeats,
            || ordered::contended(&server.url(), how, &mut shares),
            || cycles(&mut peers, &command, SLICE),
        )?;
        let name = format!("consul 2 x 15 {case} beside api.Lock");
        Row::ratio(&name, "/s", &duel, Goal::AtLeast(5.0)).print();
    }
    Ok(())
}

/// The requests of a hand-over, with twenty waiters in as many clients.
pub(crate) fn hand_over(settings: &Settings) -> Outcome<()> {
    let server = Consul::start();
    let (port, count) = counting(server.port())?;
    let url = format!("consul://127.0.0.1:{port}");
    let mut each = Vec::new();
    for _ in 0..settings.repeats {
        let requests = || Ok(count.load(Ordering::Relaxed) as f64);
        let costs = ordered::hand_overs(&url, WAITERS, WAITERS, requests);
        each.push(one_thread()?.block_on(costs)?);
    }
    let name = "consul requests per hand-over, 20 waiters";
    Row::alone(name, "", Spread::of(each), Goal::AtMost(6.0)).print();
    Ok(())
}

/// A port that passes on to another, and counts the requests.
fn counting(to: u16) -> Outcome<(u16, Arc<AtomicU64>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let (port, count) = (listener.local_addr()?.port(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    let _ = std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else {
                continue;
            };
            let (Ok(from_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else {
                continue;
            };
            let count = counted.clone();
            let _ = std::thread::spawn(move || pass(client, server, Some(&count)));
            let _ = std::thread::spawn(move || pass(from_server, to_client, None));
        }
    });
    Ok((port, count))
}

fn pass(mut from: TcpStream, mut to: TcpStream, count: Option<&AtomicU64>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut bytes)
        && read > 0
        && to.write_all(&bytes[..read]).is_ok()
    {
        // A request's first line comes in one piece: the client writes its head at once.
        let lines = bytes[..read].windows(9).filter(|at| at == b" HTTP/1.1");
        if let Some(count) = count {
            let _ = count.fetch_add(lines.count() as u64, Ordering::Relaxed);
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
