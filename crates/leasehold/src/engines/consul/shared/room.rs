//! Where claims of this process are, and how many of them the agent has connections for.

use super::layout::QUEUE;
use super::server::SharedServer;
use crate::engines::ordered::Fail;
use crate::error::ErrorKind;

/// Which of three a room is: the key of a mutex, those that wait for permits, or the directory of a semaphore.
pub(super) enum Room {
    Mutex,
    Queue,
    Permits,
}

pub(super) fn room(room: &str) -> Room {
    match room {
        room if room.ends_with(QUEUE) => Room::Queue,
        room if room.ends_with('/') => Room::Permits,
        _ => Room::Mutex,
    }
}

impl SharedServer {
    /// Refuses a lock for whose changes the agent might take no connection: then it takes none for renewals either.
    pub(super) fn has_room(&self, at: &str) -> Result<(), Fail> {
        // One request tells of a mutex, however many of this process want it; each claim on permits has its own.
        let now = self.hall.count(|at, alive| match room(at) {
            Room::Mutex => alive.min(1),
            Room::Permits => alive,
            Room::Queue => 0,
        });
        let adds = match room(at) {
            Room::Mutex => usize::from(self.hall.places(at).is_empty()),
            Room::Permits => 1,
            Room::Queue => 0,
        };
        let most = self.own.http.config.locks;
        if now + adds <= most {
            return Ok(());
        }
        let what = format!(
            "this client holds {most} locks of Consul's own layout or waits for them, the most there may be: for each of them the \
             agent keeps a connection, of 200 for one address. Raise http_max_conns_per_client there and say locks=N in the URL"
        );
        Err(Fail::Refused(ErrorKind::Unavailable, what))
    }
}
