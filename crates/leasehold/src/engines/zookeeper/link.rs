//! One ZooKeeper session: opened for a lease, followed until it is over.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::ground::Grounds;
use super::note::Written;
use super::wire::{Answer, Line, Lines, Trouble, Wire};
use crate::engine::{Event, Inbox};
use crate::error::{Error, ErrorKind, Result, Step};

/// One ZooKeeper session.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: Wire,
    /// The longest lease whose end we see before the server can end the session.
    pub(super) lease: Duration,
    /// Whether the server gave more than was asked for: it gives nothing shorter.
    shortest: bool,
    /// Cancelled when the session is over.
    pub(super) over: CancellationToken,
    pub(super) grounds: Grounds,
    pub(super) written: Written,
}

/// A follower passes our words on to the leader up to half a tick late, and a session has at least two ticks. So a
/// session must be a third longer than the lease.
fn timeout_for(lease: Duration) -> Duration {
    lease * 4 / 3 + Duration::from_millis(1)
}

fn lease_of(timeout: Duration) -> Duration {
    timeout * 3 / 4
}

impl Link {
    /// Opens a session that lives at least this long without a word.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) async fn open(
        config: &Config,
        lease: Duration,
        inbox: Option<Inbox>,
    ) -> Result<Arc<Self>> {
        let asked = timeout_for(lease);
        let wire = Wire::connect(config, asked)
            .await
            .map_err(|trouble| failed(&trouble, Step::Open))?;
        let given = wire.timeout();
        let longest = lease_of(given);
        if longest < lease {
            let what = format!(
                "a lease of {lease:?} needs a session of {asked:?}, and this server allows {given:?} \
                 (maxSessionTimeout): ask for at most {longest:?}"
            );
            return Err(Error::new(ErrorKind::Invalid, Step::Open, what).on("zookeeper"));
        }
        let (over, lines) = (wire.over(), wire.lines());
        drop(tokio::spawn(follow(lines, over.clone(), inbox)));
        Ok(Arc::new(Self {
            wire,
            lease: longest,
            shortest: given > asked,
            over,
            grounds: Grounds::default(),
            written: Written::default(),
        }))
    }

    /// Whether claims of this lease belong here: safe, and a dead holder's lock passes on in about that time.
    pub(super) fn fits(&self, lease: Duration) -> bool {
        !self.over.is_cancelled()
            && lease <= self.lease
            && (self.shortest || self.lease <= lease * 2)
    }

    /// Asks until there is an answer or the session is over. Only for what may be asked twice.
    pub(super) async fn again<T, F>(&self, mut ask: impl FnMut() -> F) -> Answer<T>
    where
        F: Future<Output = Answer<T>>,
    {
        let mut pause = Duration::from_millis(5);
        loop {
            match ask().await {
                Err(Trouble::Unknown(why)) => {
                    tracing::debug!(why, "asking again");
                    if self.over.is_cancelled() {
                        return Err(Trouble::Dead(why));
                    }
                }
                answer => return answer,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.over.cancelled() => {}
            }
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Deletes a node; says whether it was there.
    pub(super) async fn delete(&self, path: &str) -> Answer<bool> {
        let mut tries = 0;
        let deleted = self.again(|| {
            tries += 1;
            self.wire.delete(path)
        });
        match deleted.await {
            Ok(()) => Ok(true),
            // Perhaps it was the request whose answer was lost.
            Err(Trouble::NoNode) => Ok(tries > 1),
            Err(trouble) => Err(trouble),
        }
    }

    pub(super) async fn mkdir(&self, path: &str) -> Answer<()> {
        // Made and cleared away again is as good as made: whoever comes next makes it again.
        match self.again(|| self.wire.mkdir(path)).await {
            Err(Trouble::NoNode | Trouble::Exists) => Ok(()),
            answer => answer,
        }
    }

    /// Ends the session; the server deletes its nodes.
    pub(super) async fn close(self: Arc<Self>) {
        let mut lines = self.wire.lines();
        self.over.cancel();
        drop(self);
        let gone = async { while lines.now() != Line::Over && lines.next().await != Line::Over {} };
        // Should somebody still hold the link, or the server be away, the session ends by itself.
        let _ = tokio::time::timeout(Duration::from_secs(2), gone).await;
    }
}

/// Tells the ups and downs of the connection.
async fn follow(mut lines: Lines, over: CancellationToken, inbox: Option<Inbox>) {
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = over.cancelled() => return,
        };
        if let (Line::Down, Some(inbox)) = (line, &inbox) {
            inbox.deliver(Event::Unsure);
        }
    }
}

/// The error of a request that failed.
pub(super) fn failed(trouble: &Trouble, step: Step) -> Error {
    let (kind, perhaps) = match trouble {
        Trouble::Denied(_) => (ErrorKind::Denied, false),
        Trouble::Unknown(_) => (ErrorKind::Unavailable, true),
        _ => (ErrorKind::Unavailable, false),
    };
    let error = Error::new(kind, step, trouble.to_string()).on("zookeeper");
    if perhaps { error.perhaps() } else { error }
}
