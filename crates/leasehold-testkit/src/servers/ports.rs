//! Ports for servers, in blocks that one test process has to itself.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Below the ports that the system gives to connections, by ten thousand: a node of a Redis cluster takes the port
/// that is so much higher, too.
const LOWEST: u16 = 12_000;
const BLOCK: u16 = 50;
const BLOCKS: u16 = 200;

/// As many as a process takes before it gives its first ports again.
const ENOUGH: usize = 8;

/// Not the temporary directory of the environment: all test processes of a machine share the ports.
const LOCKS: &str = "/tmp/leasehold-ports";

#[derive(Debug)]
struct Taken {
    blocks: Vec<(u16, File)>,
    given: usize,
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken {
    blocks: Vec::new(),
    given: 0,
});

/// A free port, which no connection and no other test process takes before the server has started. Each call gives another.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..ENOUGH * usize::from(BLOCK) {
        let at = taken.given / usize::from(BLOCK) % ENOUGH;
        if at == taken.blocks.len()
            && let Some(block) = block(&taken.blocks)
        {
            taken.blocks.push(block);
        }
        let blocks = taken.blocks.len();
        assert!(blocks > 0, "other test processes have all ports");
        let port = taken.blocks[at % blocks].0 + (taken.given % usize::from(BLOCK)) as u16;
        taken.given += 1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// The first port of a block that no other process has, and the lock that says so.
fn block(taken: &[(u16, File)]) -> Option<(u16, File)> {
    let dir = Path::new(LOCKS);
    let _ = std::fs::create_dir_all(dir);
    // Other users have tests of their own.
    let _ = std::fs::set_permissions(dir, Permissions::from_mode(0o1777));
    let first = (std::process::id() % u32::from(BLOCKS)) as u16;
    (0..BLOCKS).find_map(|more| {
        let block = (first + more) % BLOCKS;
        let port = LOWEST + block * BLOCK;
        if taken.iter().any(|(other, _)| *other == port) {
            return None;
        }
        let path = dir.join(block.to_string());
        let file = File::options().create(true).append(true).open(&path).ok()?;
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(0o666));
        file.try_lock().ok()?;
        Some((port, file))
    })
}
