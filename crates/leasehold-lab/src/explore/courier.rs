//! Carries a client's calls, answers and events: late, in another order, twice or not at all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::engine::Step;
use leasehold::engine::{
    Claim, Engine, Event, Guarantees, Heard, Identity, Inbox, LineView, Memory, Query, Release,
    Session, Standing,
};
use leasehold::{Error, ErrorKind, Fence, Name, Result};
use tokio::time::{Instant, sleep};

use super::chance::{Chance, Point};
use super::judge::Judge;
use super::program::{Fate, Hit, Program};

/// The actor of a client's messages; smaller numbers are tasks.
const MESSAGES: usize = 100;

/// How long a server that is away takes to refuse.
const REFUSAL: Duration = Duration::from_millis(30);

/// One client's way to the engine. Clones are the same way.
#[derive(Debug, Clone)]
pub struct Courier {
    inner: Memory,
    client: usize,
    way: Duration,
    faults: bool,
    hits: Arc<[Hit]>,
    start: Instant,
    chance: Chance,
    judge: Judge,
}

/// The fate of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    None,
    Refused,
    Hangs,
    AnswerLost,
    AnswerHangs,
}

impl Courier {
    /// The way of one client.
    pub fn new(
        inner: &Memory,
        client: usize,
        program: &Program,
        chance: &Chance,
        judge: &Judge,
    ) -> Self {
        Self {
            inner: inner.clone(),
            client,
            way: program.world.trip / 2,
            faults: program.world.faults,
            hits: program.hits.clone().into(),
            start: Instant::now(),
            chance: chance.clone(),
            judge: judge.clone(),
        }
    }

    fn actor(&self) -> usize {
        MESSAGES + self.client
    }

    fn is_hit(&self, by: impl Fn(Fate) -> bool) -> Option<Fate> {
        let now = self.start.elapsed();
        let hits = self.hits.iter().filter(|hit| hit.client == self.client);
        let mut hits = hits.filter(|hit| hit.from <= now && now < hit.from + hit.length);
        hits.find(|hit| by(hit.fate)).map(|hit| hit.fate)
    }

    async fn travel(&self, point: Point) {
        let time = self.way + self.chance.delay(self.actor(), point);
        if !time.is_zero() {
            sleep(time).await;
        }
    }

    /// The fate of a call that speaks for this claim. A loss is noted as the cause of its consequences.
    fn loss(&self, claim: Option<&Claim>) -> Loss {
        let outage = self.is_hit(|fate| matches!(fate, Fate::Outage(_)));
        let loss = match outage {
            Some(Fate::Outage(true)) => Loss::Hangs,
            Some(_) => Loss::Refused,
            None if !self.faults => Loss::None,
            None => match self.chance.happens(self.actor(), Point::Fault, 12) {
                None => Loss::None,
                Some(mut random) => *random.pick(&[
                    Loss::Refused,
                    Loss::Hangs,
                    Loss::AnswerLost,
                    Loss::AnswerHangs,
                ]),
            },
        };
        if let (Some(claim), true) = (claim, loss != Loss::None) {
            self.judge.trouble(claim.id);
        }
        loss
    }

    /// The fate of a heartbeat, for this claim.
    fn beat_loss(&self, claim: &Claim) -> Loss {
        let sick =
            |fate| matches!(fate, Fate::Sick(name) if claim.name.as_str() == super::name(name));
        if self.is_hit(sick).is_none() {
            return self.loss(Some(claim));
        }
        self.judge.trouble(claim.id);
        Loss::Hangs
    }

    /// One call, there and back.
    async fn carry<T>(
        &self,
        step: Step,
        claim: Option<&Claim>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.travel(Point::Request).await;
        let failed = |why: &str| Error::new(ErrorKind::Unavailable, step, why).on("courier");
        let loss = self.loss(claim);
        match loss {
            Loss::Refused => {
                sleep(REFUSAL).await;
                return Err(failed("refused"));
            }
            Loss::Hangs => return std::future::pending().await,
            _ => {}
        }
        let answer = call.await;
        self.travel(Point::Answer).await;
        match loss {
            Loss::AnswerLost => Err(failed("the answer was lost").perhaps()),
            Loss::AnswerHangs => std::future::pending().await,
            _ => answer,
        }
    }

    fn inbox(&self, inbox: Inbox) -> Inbox {
        let courier = self.clone();
        Inbox::new(move |event| {
            courier.judge.engine_tells(&event);
            let lost = courier.faults
                || courier
                    .is_hit(|fate| matches!(fate, Fate::Outage(_)))
                    .is_some();
            if lost
                && courier
                    .chance
                    .happens(courier.actor(), Point::Missed, 6)
                    .is_some()
            {
                return;
            }
            let again = courier.chance.happens(courier.actor(), Point::Twice, 10);
            for _ in 0..=usize::from(again.is_some()) {
                let time = courier.way + courier.chance.delay(courier.actor(), Point::Event);
                courier.deliver(inbox.clone(), event.clone(), time);
            }
        })
    }

    fn deliver(&self, inbox: Inbox, event: Event, after: Duration) {
        let judge = self.judge.clone();
        let tell = move || {
            judge.told_event(&event);
            inbox.deliver(event);
        };
        if after.is_zero() {
            return tell();
        }
        drop(tokio::spawn(async move {
            sleep(after).await;
            tell();
        }));
    }

    /// Tells the client at the times of the program that the engine cannot be heard.
    fn unsettle(&self, inbox: &Inbox) {
        let unsure = |hit: &&Hit| hit.client == self.client && hit.fate == Fate::Unsure;
        for hit in self.hits.iter().filter(unsure) {
            self.deliver(
                inbox.clone(),
                Event::Unsure,
                hit.from.max(Duration::from_micros(1)),
            );
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Engine for Courier {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        self.unsettle(&inbox);
        let inner = self.inner.open(who, self.inbox(inbox)).await?;
        let courier = self.clone();
        Ok(Arc::new(Carried { inner, courier }))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        self.inner.inspect(query).await
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        self.inner.evict(name, fence, by, why).await
    }

    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32> {
        self.inner.ask_to_release(name, fence).await
    }
}

#[derive(Debug)]
struct Carried {
    inner: Arc<dyn Session>,
    courier: Courier,
}

impl Carried {
    /// A claim may come to the engine twice.
    async fn again(&self, claim: &Claim, answer: &Result<Standing>) {
        let (courier, judge) = (&self.courier, &self.courier.judge);
        let happens = || courier.chance.happens(courier.actor(), Point::Again, 8);
        if let Ok(first) = answer
            && happens().is_some()
            && let Ok(again) = self.inner.claim(claim).await
        {
            let _ = judge.engine_answers(claim.id, Some(&again));
            judge.repeated("claim", claim.id, first, &again);
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Session for Carried {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let judge = &self.courier.judge;
        judge.claims(self.courier.client, claim);
        let call = async {
            let answer = self.inner.claim(claim).await;
            let made = judge.engine_answers(claim.id, answer.as_ref().ok());
            self.again(claim, &answer).await;
            Ok((made, answer?))
        };
        let (made, answer) = self.courier.carry(Step::Claim, Some(claim), call).await?;
        judge.told(claim.id, made, answer);
        Ok(answer)
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let courier = &self.courier;
        courier.travel(Point::Request).await;
        let losses: Vec<_> = claims
            .iter()
            .map(|claim| courier.beat_loss(claim))
            .collect();
        let reached: Vec<_> = claims
            .iter()
            .zip(&losses)
            .filter(|(_, loss)| !matches!(loss, Loss::Refused | Loss::Hangs))
            .map(|(claim, _)| claim.clone())
            .collect();
        let answers = Mutex::new(Vec::new());
        let note = |claim: &Claim, standing| {
            let made = courier.judge.engine_answers(claim.id, Some(&standing));
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((claim.clone(), made, standing));
        };
        self.inner.heartbeat(&reached, &note).await?;
        courier.travel(Point::Answer).await;
        let lost = |claim: &Claim| {
            claims
                .iter()
                .zip(&losses)
                .any(|(other, loss)| other.id == claim.id && *loss != Loss::None)
        };
        for (claim, made, standing) in answers.into_inner().unwrap_or_else(PoisonError::into_inner)
        {
            if !lost(&claim) {
                courier.judge.told(claim.id, made, standing);
                heard(&claim, standing);
            }
        }
        if losses
            .iter()
            .any(|loss| matches!(loss, Loss::Hangs | Loss::AnswerHangs))
        {
            return std::future::pending().await;
        }
        if losses.iter().all(|loss| *loss == Loss::None) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Unavailable, Step::Heartbeat, "lost");
        Err(error.on("courier").perhaps())
    }

    fn lease(&self, claim: &Claim) -> Duration {
        self.inner.lease(claim)
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let courier = &self.courier;
        courier.judge.gives_back(claim.id);
        let call = async {
            let answer = self.inner.release(claim, used).await;
            if courier
                .chance
                .happens(courier.actor(), Point::Again, 8)
                .is_some()
                && let Ok(Release::Released) = self.inner.release(claim, used).await
            {
                courier.judge.accuse("P8", "a release counted twice".into());
            }
            answer
        };
        let answer = courier.carry(Step::Release, Some(claim), call).await;
        if answer.is_err() {
            courier.judge.not_given_back(claim.id);
        }
        answer
    }

    async fn close(&self) -> Result<()> {
        let call = self.inner.close();
        self.courier.carry(Step::Close, None, call).await
    }
}
