//! One operation, cut once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::conformance::fresh_name;
use leasehold::engine::Query;
use leasehold::{Client, Guard, GuardState, Name, Released, Result};
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use super::operation::Operation;
use super::seen;
use crate::Bed;

/// One operation through a network that is cut once, and what is found without it.
pub(super) struct Trial {
    bed: &'static Bed,
    direct: Client,
    operation: Operation,
    way: Way,
    after: u64,
    /// Whether the connection was used for this name before.
    used: bool,
    name: String,
    proxies: Vec<Proxy>,
    url: String,
    happened: AtomicBool,
}

/// An error if the state is not as it was told.
type Verdict = Result<(), String>;

impl Trial {
    pub(super) fn new(
        bed: &'static Bed,
        direct: Client,
        operation: Operation,
        way: Way,
        (after, used): (u64, bool),
    ) -> Self {
        let (proxies, url) = bed.proxies();
        Self {
            bed,
            direct,
            operation,
            way,
            after,
            used,
            name: fresh_name(),
            proxies,
            url,
            happened: AtomicBool::new(false),
        }
    }

    /// Whether the cut happened, or what went wrong.
    pub(super) async fn run(self) -> Result<bool, String> {
        let what = format!(
            "{:?} cut {:?} after {} (used before: {})",
            self.operation, self.way, self.after, self.used
        );
        let far = self.bed.connect(&self.url).await;
        let far = far.map_err(|error| format!("{what}: {error}"))?;
        let bystander = far.mutex(fresh_name()).lock().await;
        let bystander = bystander.map_err(|error| format!("{what}: {error}"))?;
        if self.used {
            let guard = far.mutex(&self.name).lock().await.map_err(text)?;
            let _ = guard.release().await.map_err(text)?;
        }
        let judged = async {
            match self.operation {
                Operation::Claim => self.claim(&far, false).await,
                Operation::Try => self.claim(&far, true).await,
                Operation::Heartbeat => self.heartbeat(&far).await,
                Operation::Release => self.release(&far).await,
                Operation::Downgrade => self.downgrade(&far).await,
                Operation::Evict => self.evict(&far).await,
                Operation::Inspect => self.inspect(&far).await,
            }
        };
        // Meanwhile, and for a lease after it was cut.
        let (judged, kept) = tokio::join!(judged, async {
            self.a_lease().await;
            self.kept("the bystander", bystander).await
        });
        let happened = self.happened.load(Ordering::SeqCst);
        let told = |text: String| format!("{what} (cut: {happened}): {text}");
        judged.and(kept).map_err(told)?;
        self.idle().await.map_err(told)?;
        Ok(happened)
    }

    fn cut(&self) {
        // A heartbeat may name claims and not lines.
        if self.operation != Operation::Heartbeat {
            let words = self.words();
            let cut = |proxy: &Proxy| proxy.after_words(&words, self.way, self.after, Fate::Reset);
            return self.proxies.iter().for_each(cut);
        }
        self.proxies
            .iter()
            .for_each(|proxy| proxy.after(self.way, self.after, Fate::Reset));
    }

    /// How the name is written in messages: as it is, or the key that databases make of it.
    fn words(&self) -> Vec<Vec<u8>> {
        let key = &Sha256::digest(self.name.as_bytes())[..16];
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let upper = hex.to_uppercase();
        vec![
            self.name.clone().into(),
            key.to_vec(),
            hex.into(),
            upper.into(),
        ]
    }

    /// The operation is over: later messages are not cut.
    fn mend(&self) {
        let happened = self.proxies.iter().any(|proxy| !proxy.is_armed());
        let _ = self.happened.fetch_or(happened, Ordering::SeqCst);
        self.proxies
            .iter()
            .for_each(|proxy| proxy.set_both(Fate::Pass));
    }

    /// For longer than a lease: a claim that a lost answer left behind has ended, a renewed one has not.
    async fn a_lease(&self) {
        tokio::time::sleep(self.bed.lease * 3 / 2).await;
    }

    async fn claim(&self, far: &Client, tries: bool) -> Verdict {
        let mutex = far.mutex(&self.name);
        self.cut();
        let told = match tries {
            true => mutex.try_lock().await,
            false => mutex.lock().await.map(Some),
        };
        self.mend();
        let (holders, _) = seen(&self.direct, &self.name).await;
        match told {
            Ok(None) => Err(format!("told busy, and no other client asked: {holders:?}")),
            Ok(Some(guard)) => {
                let shown = holders == [guard.fence().get()];
                shown
                    .then_some(())
                    .ok_or(format!("told {}, seen {holders:?}", guard.fence()))?;
                self.kept("what was granted", guard).await
            }
            Err(error) if !error.may_have_happened() && !holders.is_empty() => {
                Err(format!("told {error:?}, seen {holders:?}"))
            }
            Err(_) => Ok(()),
        }
    }

    async fn heartbeat(&self, far: &Client) -> Verdict {
        let guard = far.mutex(&self.name).lock().await.map_err(text)?;
        self.cut();
        self.a_lease().await;
        self.mend();
        self.kept("what is renewed", guard).await
    }

    async fn release(&self, far: &Client) -> Verdict {
        let guard = far.mutex(&self.name).lock().await.map_err(text)?;
        let next = self.waits().await;
        self.cut();
        let told = guard.release().await;
        self.mend();
        match told {
            Ok(Released::Released) | Err(_) => {}
            Ok(other) => return Err(format!("told {other:?}, and it was held until then")),
        }
        self.kept("the next holder", self.granted(next).await?)
            .await
    }

    async fn downgrade(&self, far: &Client) -> Verdict {
        let guard = far.rwlock(&self.name).write().await.map_err(text)?;
        let fence = guard.fence();
        let next = self.reads().await;
        self.cut();
        let told = guard.downgrade().await;
        self.mend();
        let next = self.granted(next).await?;
        if let Ok(guard) = told {
            let (holders, _) = seen(&self.direct, &self.name).await;
            let shown = holders.contains(&fence.get());
            shown
                .then_some(())
                .ok_or(format!("told {fence}, seen {holders:?}"))?;
            self.kept("what was downgraded", guard).await?;
        }
        self.kept("the next reader", next).await
    }

    async fn evict(&self, far: &Client) -> Verdict {
        let holder = self
            .direct
            .mutex(&self.name)
            .strict()
            .lock()
            .await
            .map_err(text)?;
        let next = self.waits().await;
        self.cut();
        let told = far.evict(&self.name, "it was cut").await;
        self.mend();
        let gone = !seen(&self.direct, &self.name)
            .await
            .0
            .contains(&holder.fence().get());
        match &told {
            Ok(1) if gone => {}
            Ok(count) if *count > 1 || gone != (*count == 1) => {
                return Err(format!("told {count}, and the holder is gone: {gone}"));
            }
            Err(error) if gone && !error.may_have_happened() => {
                return Err(format!("told {error:?}, and the holder is gone"));
            }
            _ => {}
        }
        let released = holder.release().await.map_err(text)?;
        if gone != (released == Released::WasLost) {
            return Err(format!(
                "the holder is gone: {gone}, and is told {released:?}"
            ));
        }
        self.kept("the next holder", self.granted(next).await?)
            .await
    }

    async fn inspect(&self, far: &Client) -> Verdict {
        let holder = self.direct.mutex(&self.name).lock().await.map_err(text)?;
        let query = Query::name(Name::new(&self.name).expect("a name"));
        self.cut();
        let told = far.inspect(&query).await;
        self.mend();
        if let Ok(lines) = told {
            let fences = lines.iter().flat_map(|line| &line.holders);
            let fences: Vec<_> = fences.filter_map(|holder| holder.fence).collect();
            if fences != [holder.fence()] {
                return Err(format!("told {fences:?}, held by {}", holder.fence()));
            }
        }
        self.kept("what was looked at", holder).await
    }

    /// A claim of another client, in line.
    async fn waits(&self) -> JoinHandle<Result<Guard>> {
        let mutex = self.direct.mutex(&self.name).strict();
        let waiter = tokio::spawn(async move { mutex.lock().await });
        self.in_line().await;
        waiter
    }

    async fn reads(&self) -> JoinHandle<Result<Guard>> {
        let lock = self.direct.rwlock(&self.name).strict();
        let waiter = tokio::spawn(async move { lock.read().await });
        self.in_line().await;
        waiter
    }

    async fn in_line(&self) {
        let waits = self.until(|_, waiters| waiters > 0).await;
        waits.expect("a claim waits");
    }

    /// Looks until it is so, for as long as anything may take that a lease ends; says what was seen last.
    async fn until(&self, so: fn(&[u64], usize) -> bool) -> Verdict {
        let patience = self.bed.lease * 2 + Duration::from_secs(5);
        let mut last = String::new();
        let looks = async {
            loop {
                let (holders, waiters) = seen(&self.direct, &self.name).await;
                if so(&holders, waiters) {
                    return;
                }
                last = format!("{holders:?} hold, {waiters} wait");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let looked = tokio::time::timeout(patience, looks).await;
        looked.map_err(|_| last)
    }

    /// The next in line gets it: at once, or after the lease of what a lost answer left behind.
    async fn granted(&self, next: JoinHandle<Result<Guard>>) -> Result<Guard, String> {
        let patience = self.bed.lease * 2 + Duration::from_secs(5);
        let granted = tokio::time::timeout(patience, next).await;
        let granted = granted.map_err(|_| format!("the next has waited for {patience:?}"))?;
        granted
            .expect("no panic")
            .map_err(|error| format!("the next: {error}"))
    }

    /// A held lock stays held for longer than a lease, and is released by its holder.
    async fn kept(&self, what: &str, guard: Guard) -> Verdict {
        self.a_lease().await;
        if guard.state() == GuardState::Lost {
            return Err(format!("{what} was lost: {}", guard.lost().await));
        }
        match guard.release().await {
            Ok(Released::Released) => Ok(()),
            other => Err(format!("{what}: its release says {other:?}")),
        }
    }

    /// Nothing stays for longer than a lease.
    async fn idle(&self) -> Verdict {
        let idle = self.until(|holders, waiters| holders.is_empty() && waiters == 0);
        idle.await.map_err(|last| format!("left behind: {last}"))
    }
}

fn text(error: leasehold::Error) -> String {
    format!("before it was cut: {error}")
}
