//! One task of a program, on the real API.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::{Client, Mutex, Owner, Result, RwLock, Semaphore};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use super::chance::{Chance, Point};
use super::judge::{Ask, End, Judge, Taken, Who};
use super::program::{Again, Kind, Patience, Step, Task, Terms, Want, World};

/// A task that stands still for a while before some of its polls, and is looked at after each.
pub struct Stalled<F> {
    inner: Pin<Box<F>>,
    actor: usize,
    chance: Chance,
    judge: Judge,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<F> Stalled<F> {
    /// This task, as this actor.
    pub fn new(inner: F, actor: usize, chance: &Chance, judge: &Judge) -> Self {
        let (inner, chance, judge) = (Box::pin(inner), chance.clone(), judge.clone());
        let stall = None;
        Self {
            inner,
            actor,
            chance,
            judge,
            stall,
        }
    }
}

impl<F> std::fmt::Debug for Stalled<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stalled({})", self.actor)
    }
}

impl<F: Future> Future for Stalled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if this.stall.is_none() {
            let still = this.chance.delay(this.actor, Point::Stall);
            if !still.is_zero() {
                this.stall = Some(Box::pin(sleep(still)));
            }
        }
        if let Some(stall) = &mut this.stall {
            std::task::ready!(stall.as_mut().poll(context));
            this.stall = None;
        }
        let done = this.inner.as_mut().poll(context);
        this.judge.look();
        done
    }
}

/// One task of a client, with what it holds.
#[derive(Debug)]
pub struct Actor {
    /// Its number.
    pub task: usize,
    /// Of which client, by number.
    pub number: usize,
    /// The client itself.
    pub client: Client,
    /// The client's owners.
    pub owners: Vec<Owner>,
    /// Where it lives.
    pub world: World,
    /// How many steps each task has begun.
    pub begun: watch::Sender<Vec<usize>>,
    /// Looks on.
    pub judge: Judge,
    /// The grants it holds, oldest first.
    pub held: Vec<(Arc<Taken>, Vec<u64>)>,
}

impl Actor {
    /// Takes every step, and drops what is left.
    pub async fn act(mut self, task: Task) {
        for step in task.steps {
            self.begun.send_modify(|begun| begun[self.task] += 1);
            self.step(step).await;
        }
        while let Some((taken, ids)) = self.held.pop() {
            let _ = self.judge.leaves(&ids);
            drop(taken);
        }
        let (judge, client) = (self.judge.clone(), self.number);
        drop(self);
        judge.task_ends(client);
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Take(name, want, patience, terms) => self.take(name, want, patience, terms).await,
            Step::Release if !self.held.is_empty() => {
                let (taken, ids) = self.held.remove(0);
                self.release(taken, ids, None).await;
            }
            Step::DropRelease(after) => {
                if let Some((taken, ids)) = self.held.pop() {
                    self.release(taken, ids, Some(after)).await;
                }
            }
            Step::Drop => {
                if let Some((taken, ids)) = self.held.pop() {
                    let _ = self.judge.leaves(&ids);
                    drop(taken);
                }
            }
            Step::Downgrade => self.downgrade().await,
            Step::Rest(time) => sleep(time).await,
            Step::Meet(task, step) => {
                let mut begun = self.begun.subscribe();
                let met = begun.wait_for(|begun| begun[task] > step);
                drop(timeout(self.world.lease / 2, met).await);
            }
            Step::Evict(name) => drop(self.client.evict(super::name(name), "by program").await),
            Step::Ask(name) => drop(self.client.ask_to_release(super::name(name)).await),
            Step::Shutdown(patience) => {
                let began = self.judge.closes(self.number, patience);
                let _ = self.client.shutdown(patience).await;
                self.judge.closed(self.number, began, patience);
            }
            Step::Release => {}
        }
    }

    async fn take(&mut self, name: usize, want: Want, patience: Patience, terms: Terms) {
        let kinds = &self.world.names;
        let both =
            want == Want::Both && kinds.len() > 1 && kinds.iter().all(|kind| *kind == Kind::Mutex);
        let names = if both {
            (0..kinds.len()).collect()
        } else {
            vec![name]
        };
        // A task that waits without end while it holds may wait for itself.
        let patience = match patience {
            Patience::Wait if !self.held.is_empty() => Patience::Within(self.world.lease / 10),
            patience => patience,
        };
        let who = Who::of(self.number, self.task, &terms);
        let who = if both { Who::Task(self.task) } else { who };
        let ask = self
            .judge
            .begins(Ask::new(self.number, who, names, want, patience, terms));
        let called = async {
            match both {
                true => self.several(patience, terms).await,
                false => self.one(name, want, patience, terms).await,
            }
        };
        let answer = match patience {
            Patience::DropAfter(time) => timeout(time, called).await.ok(),
            _ => Some(called.await),
        };
        match answer {
            None => drop(self.judge.ends(ask, &End::Dropped)),
            Some(Err(error)) => drop(self.judge.ends(ask, &End::Failed(&error))),
            Some(Ok(None)) => drop(self.judge.ends(ask, &End::Busy)),
            Some(Ok(Some(taken))) => {
                let taken = Arc::new(taken);
                let ids = self.judge.ends(ask, &End::Granted(&taken));
                self.held.push((taken, ids));
            }
        }
    }

    async fn one(
        &self,
        name: usize,
        want: Want,
        patience: Patience,
        terms: Terms,
    ) -> Result<Option<Taken>> {
        let (client, text) = (&self.client, super::name(name));
        match self.world.names[name] {
            Kind::Mutex => {
                let mutex = self.again(self.on(client.mutex(text), &terms), &terms);
                let guard = match patience {
                    Patience::Try => mutex.try_lock().await?,
                    Patience::Within(time) => mutex.lock_within(time).await?,
                    _ => Some(mutex.lock().await?),
                };
                Ok(guard.map(Taken::One))
            }
            Kind::Permits(of) => {
                let count = if let Want::Many(count) = want {
                    count.min(of)
                } else {
                    1
                };
                let permits = self.on(client.semaphore(text, of), &terms);
                let guard = match patience {
                    Patience::Try => permits.try_acquire_many(count).await?,
                    Patience::Within(time) => permits.acquire_many_within(count, time).await?,
                    _ => Some(permits.acquire_many(count).await?),
                };
                Ok(guard.map(Taken::One))
            }
            Kind::ReadWrite => {
                let lock = self.again(self.on(client.rwlock(text), &terms), &terms);
                if want == Want::Read {
                    let guard = match patience {
                        Patience::Try => lock.try_read().await?,
                        Patience::Within(time) => lock.read_within(time).await?,
                        _ => Some(lock.read().await?),
                    };
                    return Ok(guard.map(Taken::One));
                }
                let guard = match patience {
                    Patience::Try => lock.try_write().await?,
                    Patience::Within(time) => lock.write_within(time).await?,
                    _ => Some(lock.write().await?),
                };
                Ok(guard.map(Taken::Writer))
            }
        }
    }

    async fn several(&self, patience: Patience, terms: Terms) -> Result<Option<Taken>> {
        let names = (0..self.world.names.len()).map(super::name);
        let several = self.on(self.client.multi(names), &terms);
        let guard = match patience {
            Patience::Try => several.try_lock().await?,
            Patience::Within(time) => several.lock_within(time).await?,
            _ => Some(several.lock().await?),
        };
        Ok(guard.map(Taken::Many))
    }

    fn on<L: OnTerms>(&self, lock: L, terms: &Terms) -> L {
        lock.on(terms, self.world.lease_of(terms))
    }

    fn again<L: Reenters>(&self, lock: L, terms: &Terms) -> L {
        match terms.again {
            Again::No => lock,
            Again::Task => lock.by_task(),
            Again::Owner(owner) => lock.by(&self.owners[owner]),
        }
    }

    async fn release(&self, taken: Arc<Taken>, ids: Vec<u64>, give_up: Option<Duration>) {
        let lost = self.judge.leaves(&ids);
        let Some(taken) = Arc::into_inner(taken) else {
            return;
        };
        let released = async {
            match taken {
                Taken::One(guard) => guard.release().await,
                Taken::Writer(guard) => guard.release().await,
                Taken::Many(guards) => guards.release().await,
            }
        };
        match give_up {
            Some(time) => drop(timeout(time, released).await),
            None => self.judge.released(lost, &released.await),
        }
    }

    async fn downgrade(&mut self) {
        let Some((taken, ids)) = self.held.pop() else {
            return;
        };
        let taken = match Arc::into_inner(taken) {
            Some(Taken::Writer(writer)) => writer,
            Some(other) => return self.held.push((Arc::new(other), ids)),
            None => return,
        };
        // While it changes, its token alone says whether it is valid, and it writes no more.
        self.judge.downgrades(&ids);
        let downgraded = taken.downgrade().await;
        match downgraded {
            Ok(guard) => {
                let taken = Arc::new(Taken::One(guard));
                self.judge.downgraded(&ids, &taken);
                self.held.push((taken, ids));
            }
            Err(_) => drop(self.judge.leaves(&ids)),
        }
    }
}

/// A kind that is asked for on terms.
trait OnTerms {
    fn on(self, terms: &Terms, lease: Duration) -> Self;
}

/// A kind that can be re-entered.
trait Reenters {
    fn by_task(self) -> Self;
    fn by(self, owner: &Owner) -> Self;
}

macro_rules! on_terms {
    ($($kind:ty),*) => {$(
        impl OnTerms for $kind {
            fn on(self, terms: &Terms, lease: Duration) -> Self {
                let lock = self.lease(lease).keep_alive(terms.keep_alive);
                let lock = lock.min_hold(terms.min_hold).linger(terms.linger);
                if terms.strict { lock.strict() } else { lock }
            }
        }
    )*};
}

macro_rules! reenters {
    ($($kind:ty),*) => {$(
        impl Reenters for $kind {
            fn by_task(self) -> Self {
                self.reentrant()
            }

            fn by(self, owner: &Owner) -> Self {
                self.owner(owner)
            }
        }
    )*};
}

on_terms!(Mutex, RwLock, Semaphore, leasehold::Multi);
reenters!(Mutex, RwLock);
