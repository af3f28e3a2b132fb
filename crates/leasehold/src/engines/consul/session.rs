//! A session at Consul: opened, renewed, and over on our own clock before the server may end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::client::kv::json_of;
use super::client::trouble::{Answer, Trouble};
use super::client::{Ask, Http};
use super::follow::pause;
use crate::clock::{Micros, micros};
use crate::engine::{Clock, Event, Inbox};
use crate::error::{Error, ErrorKind, Result, Step};

/// The longest TTL that a server gives.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// For how long a server that cannot be reached, or has no leader, is asked again for a session.
const PATIENCE: Duration = Duration::from_secs(3);

/// One session.
#[derive(Debug)]
pub(super) struct Lease {
    http: Arc<Http>,
    /// Its name at the server; empty for none.
    pub(super) id: String,
    /// The server ends it between one and two TTLs after its last word.
    pub(super) ttl: Duration,
    pub(super) over: CancellationToken,
    /// Cancelled when the server was told, or cannot be told, that it is over.
    pub(super) ended: CancellationToken,
    clock: Clock,
    /// When the last renewal was sent that the server answered.
    proved: AtomicU64,
}

/// The TTL that is asked for: the lease in whole milliseconds, and the server's shortest at least.
pub(super) fn ttl_for(lease: Duration, floor: Duration) -> Duration {
    let millis = lease.as_micros().div_ceil(1_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).max(floor)
}

impl Lease {
    /// No session, for calls that need none.
    pub(super) fn none(http: Arc<Http>, ttl: Duration) -> Self {
        Self::new(http, String::new(), ttl, 0, CancellationToken::new())
    }

    fn new(
        http: Arc<Http>,
        id: String,
        ttl: Duration,
        proved: Micros,
        over: CancellationToken,
    ) -> Self {
        Self {
            http,
            id,
            ttl,
            over,
            ended: CancellationToken::new(),
            clock: Clock::boot(),
            proved: AtomicU64::new(proved),
        }
    }

    /// Opens a session for claims of this lease. `floor` is the server's shortest TTL, as far as it is known, in milliseconds.
    /// Cancelling `over` ends it.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) async fn open(
        http: &Arc<Http>,
        lease: Duration,
        floor: &AtomicU64,
        inbox: Inbox,
        over: CancellationToken,
    ) -> Result<Arc<Self>> {
        let refused = |kind, what| Error::new(kind, Step::Open, what).on("consul");
        if lease > LONGEST {
            let what = format!(
                "a lease of {lease:?} is longer than a session of Consul: ask for at most {LONGEST:?}"
            );
            return Err(refused(ErrorKind::Invalid, what));
        }
        let (clock, mut failed) = (Clock::boot(), 0);
        let until = clock.now() + micros(PATIENCE);
        loop {
            let ttl = ttl_for(lease, Duration::from_millis(floor.load(Ordering::Relaxed)));
            let sent = clock.now();
            let trouble = match create(http, ttl).await {
                Ok(id) => {
                    let lease = Arc::new(Self::new(http.clone(), id, ttl, sent, over));
                    drop(tokio::spawn(lease.clone().keep(inbox)));
                    return Ok(lease);
                }
                Err(trouble) => trouble,
            };
            match (shortest(&trouble.to_string()), trouble) {
                (Some(shortest), _) if shortest > ttl => {
                    let shortest = u64::try_from(shortest.as_millis()).unwrap_or(u64::MAX);
                    floor.store(shortest, Ordering::Relaxed);
                }
                (_, Trouble::Later(_) | Trouble::Unknown(_)) if clock.now() < until => {
                    failed += 1;
                    pause(failed).await;
                }
                (_, Trouble::Denied(why)) => return Err(refused(ErrorKind::Denied, why)),
                (_, trouble) => return Err(refused(ErrorKind::Unavailable, trouble.to_string())),
            }
        }
    }

    /// Renews it. The server has heard of it after this was called if it says so.
    pub(super) async fn renew(&self) -> Answer<()> {
        let sent = self.clock.now();
        let ask = Ask {
            probes: true,
            ..Ask::put(&format!("session/renew/{}", self.id), Vec::new())
        };
        let dead = || Trouble::Dead("Consul has ended the session".to_owned());
        let answer = match self.http.send(&ask).await {
            Ok(reply) if reply.found => Ok(()),
            Ok(_) => Err(dead()),
            Err(trouble) => Err(trouble),
        };
        match &answer {
            Ok(()) => drop(self.proved.fetch_max(sent, Ordering::AcqRel)),
            Err(Trouble::Dead(_)) => self.over.cancel(),
            Err(_) => {}
        }
        answer
    }

    /// Keeps it until it is over: renews it when no claim does, and says so when the agent is not heard.
    async fn keep(self: Arc<Self>, inbox: Inbox) {
        // Also when this task is dropped with its runtime.
        let _over = self.over.clone().drop_guard();
        let _ended = self.ended.clone().drop_guard();
        let (mut heard, mut failed) = (self.http.heard(), 0_u32);
        loop {
            let proved = self.proved.load(Ordering::Acquire);
            // The server may end it from then on, whatever it does in fact.
            let end = proved + micros(self.ttl);
            let due = proved + micros(self.ttl / 2);
            let silent = !*heard.borrow_and_update();
            tokio::select! {
                () = self.over.cancelled() => break,
                () = self.clock.sleep_until(due.min(end)), if failed == 0 && !silent => {}
                () = pause(failed.min(3)), if failed > 0 || silent => {}
                _ = heard.changed() => {
                    if !*heard.borrow() {
                        inbox.deliver(Event::Unsure);
                    }
                }
            }
            let now = self.clock.now();
            if now >= self.proved.load(Ordering::Acquire) + micros(self.ttl) {
                tracing::debug!("the session was not renewed in time");
                break;
            }
            let due = self.proved.load(Ordering::Acquire) + micros(self.ttl / 2);
            if now < due && *heard.borrow() {
                failed = 0;
                continue;
            }
            tokio::select! {
                () = self.over.cancelled() => break,
                () = self.clock.sleep_until(end) => {}
                renewed = self.renew() => match renewed {
                    Ok(()) => failed = 0,
                    Err(trouble) => {
                        tracing::debug!(%trouble, "the session was not renewed");
                        failed += 1;
                    }
                }
            }
        }
        self.over.cancel();
        self.destroy().await;
    }

    /// Ends it at the server, which deletes its keys; if it cannot be told, they stay for up to two TTLs.
    async fn destroy(&self) {
        let ask = Ask {
            probes: true,
            ..Ask::put(&format!("session/destroy/{}", self.id), Vec::new())
        };
        if let Err(trouble) = self.http.send(&ask).await {
            tracing::debug!(%trouble, "the session was not destroyed");
        }
    }
}

async fn create(http: &Http, ttl: Duration) -> Answer<String> {
    let checks: &[&str] = if http.config.serf {
        &["serfHealth"]
    } else {
        &[]
    };
    // All said: an agent's defaults are a lock-delay of 15 s, keys that outlive the session, and gossip that ends it.
    let body = json!({
        "Name": "leasehold", "TTL": format!("{}ms", ttl.as_millis()),
        "LockDelay": "0s", "Behavior": "delete", "NodeChecks": checks,
    });
    let ask = Ask {
        probes: true,
        ..Ask::put("session/create", body.to_string().into_bytes())
    };
    let made: Made = json_of(&http.send(&ask).await?.body)?;
    Ok(made.id)
}

/// The answer to a request for a session.
#[derive(serde::Deserialize)]
struct Made {
    #[serde(rename = "ID")]
    id: String,
}

/// The shortest TTL, in the refusal of a shorter one: `… must be between [10s=24h0m0s]`.
pub(super) fn shortest(refusal: &str) -> Option<Duration> {
    let between = refusal.split_once("must be between [")?.1;
    go_duration(between.split_once('=')?.0)
}

/// A duration as Go writes it: `1m30s`, `500ms`, `1.5s`.
fn go_duration(mut text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    while !text.is_empty() {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(digits);
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit);
        seconds += number.parse::<f64>().ok()?
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "µs" | "us" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        text = rest;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_shortest_session_is_read_from_its_refusal() {
        let refusal = "Invalid Session TTL '2000000000', must be between [10s=24h0m0s]";
        assert_eq!(shortest(refusal), Some(Duration::from_secs(10)));
        assert_eq!(
            shortest("must be between [1m30s=24h]"),
            Some(Duration::from_secs(90))
        );
        assert_eq!(
            shortest("must be between [500ms=24h]"),
            Some(Duration::from_millis(500))
        );
        assert_eq!(shortest("Permission denied"), None);
        assert_eq!(shortest("must be between [soon=24h]"), None);
    }

    #[test]
    fn a_session_lasts_as_long_as_the_lease_and_never_less() {
        let ms = Duration::from_millis;
        assert_eq!(ttl_for(Duration::from_micros(2_500_001), ms(0)), ms(2_501));
        assert_eq!(ttl_for(ms(2_500), ms(10_000)), ms(10_000));
        assert_eq!(ttl_for(ms(20_000), ms(10_000)), ms(20_000));
    }
}
