//! The same random operations and clock steps on a database and on the rule: every answer and every event must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::conformance::raw::heartbeat;
use leasehold::engine::{
    Claim, Clock, Ended, Engine, Event, Identity, Inbox, Mode, Release, Session, SessionId, Sql,
    Standing, Url,
};
use leasehold::line::{Change, Line, Moment};
use leasehold::{ErrorKind, Name};

/// Numbers from a seed, so that a failure can be seen again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

type Told = Arc<Mutex<Vec<String>>>;

struct Seat {
    session: Arc<dyn Session>,
    id: SessionId,
    told: Told,
    /// The names of the claims it may have, as a session knows.
    names: BTreeMap<u128, usize>,
}

struct Match {
    engine: Sql,
    clock: Clock,
    dice: Dice,
    names: Vec<Name>,
    lines: BTreeMap<usize, Line>,
    seats: Vec<Seat>,
    /// The claims that were made, by name and seat.
    claims: Vec<(usize, usize, Arc<Claim>)>,
    log: Vec<String>,
}

const MODES: [Mode; 8] = [
    Mode::Mutex,
    Mode::Mutex,
    Mode::Mutex,
    Mode::Read,
    Mode::Write,
    Mode::Read,
    Mode::Permits { count: 2, of: 5 },
    Mode::Permits { count: 3, of: 5 },
];

impl Match {
    async fn new(url: &str, seed: u64) -> Self {
        let clock = Clock::stopped();
        let url = Url::parse(url).expect("a URL");
        let engine = Sql::on_clock(&url, clock.clone()).expect("an engine");
        let names = (0..3).map(|n| Name::new(format!("line:{seed}:{n}")).expect("a name"));
        let mut game = Self {
            engine,
            clock,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            names: names.collect(),
            lines: BTreeMap::new(),
            seats: Vec::new(),
            claims: Vec::new(),
            log: vec![format!("seed {seed}")],
        };
        for _ in 0..3 {
            let seat = game.sit().await;
            game.seats.push(seat);
        }
        game
    }

    async fn sit(&self) -> Seat {
        let told = Told::default();
        let hears = told.clone();
        let inbox = Inbox::new(move |event| hears.lock().unwrap().push(spell(&event)));
        let who = Identity::of_this_process();
        let session = self.engine.open(&who, inbox).await.expect("a session");
        Seat {
            session,
            id: SessionId::random(),
            told,
            names: BTreeMap::new(),
        }
    }

    fn at(&self) -> Moment {
        Moment {
            now: self.clock.now(),
            floor: self.clock.wall(),
        }
    }

    async fn step(&mut self) {
        match self.dice.below(100) {
            0..32 => self.claim().await,
            32..40 => self.claim_again().await,
            40..55 => self.beat().await,
            55..82 => self.release().await,
            82..94 => {
                let by = self.dice.below(900) * 1000;
                self.log.push(format!("{by} µs pass"));
                self.clock.skip(Duration::from_micros(by));
            }
            94..97 => self.evict().await,
            _ => self.close().await,
        }
    }

    async fn claim(&mut self) {
        let (name, seat) = (self.dice.below(3) as usize, self.dice.below(3) as usize);
        // Each name is mostly used in one way, and sometimes in another.
        let mode = match self.dice.below(12) {
            0 => self.dice.below(8) as usize,
            _ => [
                0,
                3 + self.dice.below(3) as usize,
                6 + self.dice.below(2) as usize,
            ][name],
        };
        let lease = Duration::from_millis(200 + self.dice.below(5) * 300);
        let mut claim = Claim::new(self.names[name].clone(), MODES[mode], lease);
        claim.waits = self.dice.below(4) != 0;
        self.ask(name, seat, Arc::new(claim)).await;
    }

    async fn claim_again(&mut self) {
        let Some((name, seat, claim)) = self.pick() else {
            return;
        };
        let mut claim = (*claim).clone();
        if claim.mode == Mode::Write && self.dice.below(2) == 0 {
            claim.mode = Mode::Read;
        }
        self.ask(name, seat, Arc::new(claim)).await;
    }

    async fn ask(&mut self, name: usize, seat: usize, claim: Arc<Claim>) {
        let at = self.at();
        let line = self.lines.entry(name).or_default();
        let (wanted, changes) = line.claim(&claim.ask(self.seats[seat].id), at);
        self.log.push(format!("seat {seat} claims {claim:?}"));
        let answer = self.seats[seat].session.claim(&claim).await;
        let answer = answer.map_err(|error| error.kind());
        let wanted = wanted.map_err(|_| ErrorKind::Conflict);
        self.knows(seat, name, &claim, wanted.as_ref().ok());
        self.claims.push((name, seat, claim));
        self.same(answer, wanted, &changes, None);
    }

    fn pick(&mut self) -> Option<(usize, usize, Arc<Claim>)> {
        let recent = self.claims.len().saturating_sub(8);
        let among = (self.claims.len() - recent) as u64;
        let chosen = (among > 0).then(|| recent + self.dice.below(among) as usize)?;
        Some(self.claims[chosen].clone())
    }

    async fn beat(&mut self) {
        let seat = self.dice.below(3) as usize;
        let recent = self.claims.iter().rev().take(10);
        let mine = recent.filter(|(_, whose, _)| *whose == seat).cloned();
        let mine: Vec<_> = mine.collect();
        let (at, mut changes) = (self.at(), Vec::new());
        for (name, _, claim) in &mine {
            let line = self.lines.entry(*name).or_default();
            changes.extend(line.heartbeat(claim.id, at).1);
        }
        // The answers are those after all of them were heard.
        let standing = |(name, _, claim): &(usize, usize, Arc<Claim>)| {
            let line = self.lines.get(name);
            line.map_or(Standing::Gone, |line| line.standing(claim.id, at))
        };
        let wanted: Vec<_> = mine.iter().map(standing).collect();
        self.log
            .push(format!("seat {seat} beats for {}", mine.len()));
        for ((name, _, claim), standing) in mine.iter().zip(&wanted) {
            if *standing == Standing::Gone {
                self.knows(seat, *name, claim, None);
            }
        }
        let claims: Vec<_> = mine.into_iter().map(|(_, _, claim)| claim).collect();
        let answer = heartbeat(&*self.seats[seat].session, &claims).await;
        self.same(answer, wanted, &changes, None);
    }

    async fn release(&mut self) {
        let Some((name, seat, claim)) = self.pick() else {
            return;
        };
        let (at, used) = (self.at(), self.dice.below(4) as u32);
        // A claim that the session knows to be in no line is not asked for.
        let known = self.seats[seat].names.contains_key(&claim.id.as_u128());
        let (wanted, changes) = match known {
            true => {
                let line = self.lines.entry(name).or_default();
                line.release(claim.id, used, at)
            }
            false => (Release::Gone, Vec::new()),
        };
        self.log
            .push(format!("seat {seat} releases {:?}", claim.id));
        self.knows(seat, name, &claim, None);
        let answer = self.seats[seat].session.release(&claim, used).await;
        self.same(answer.expect("released"), wanted, &changes, None);
    }

    async fn evict(&mut self) {
        let name = self.dice.below(3) as usize;
        let at = self.at();
        let holder = |line: &Line| line.holders().next().and_then(|place| place.fence);
        let fence = match self.dice.below(2) {
            0 => None,
            _ => self.lines.get(&name).and_then(holder),
        };
        let changes = self.lines.entry(name).or_default().evict(fence, at);
        self.log.push(format!("{name} is evicted {fence:?}"));
        let by = Identity::new("host", 7, "command");
        let answer = self
            .engine
            .evict(&self.names[name], fence, &by, "a reason")
            .await;
        let ended = Ended::Evicted {
            by: by.to_string(),
            why: "a reason".to_owned(),
        };
        let evicted = |change: &&Change| {
            matches!(
                change.event(Some(&ended)),
                Event::Ended(_, Ended::Evicted { .. })
            )
        };
        let wanted = changes.iter().filter(evicted).count() as u32;
        self.same(answer.expect("evicted"), wanted, &changes, Some(&ended));
    }

    fn knows(&mut self, seat: usize, name: usize, claim: &Claim, standing: Option<&Standing>) {
        let names = &mut self.seats[seat].names;
        let _ = match standing {
            Some(Standing::Held(_) | Standing::Waiting { .. }) => {
                names.insert(claim.id.as_u128(), name)
            }
            _ => names.remove(&claim.id.as_u128()),
        };
    }

    /// Everything a session has goes at once. Only lines it may be in are looked at.
    async fn close(&mut self) {
        let seat = self.dice.below(3) as usize;
        let (at, me, mut changes) = (self.at(), self.seats[seat].id, Vec::new());
        let names: BTreeSet<_> = self.seats[seat].names.values().copied().collect();
        for name in names {
            let line = self.lines.entry(name).or_default();
            changes.extend(line.sweep_dead(at, |id| id == me));
        }
        changes.retain(|change| change.session != me);
        self.log.push(format!("seat {seat} closes"));
        self.seats[seat].session.close().await.expect("closed");
        self.same((), (), &changes, None);
        self.seats[seat] = self.sit().await;
        self.claims.retain(|(_, whose, _)| *whose != seat);
        self.lines_agree().await;
    }

    /// The holders and the waiters, as `inspect` shows them.
    async fn lines_agree(&mut self) {
        for (at, name) in self.names.iter().enumerate() {
            let query = leasehold::engine::Query::name(name.clone());
            let views = self.engine.inspect(&query).await.expect("inspect");
            let seen = views.first().map_or_else(Vec::new, |view| {
                let all = view.holders.iter().chain(&view.waiters);
                all.map(|claim| claim.fence).collect()
            });
            let mut line = self.lines.get(&at).cloned().unwrap_or_default();
            drop(line.sweep(self.at()));
            let wanted: Vec<_> = line.places().map(|place| place.fence).collect();
            assert_eq!(seen, wanted, "{name}: {}", self.log.join("\n"));
        }
    }

    fn same<T: PartialEq + std::fmt::Debug>(
        &mut self,
        answer: T,
        wanted: T,
        changes: &[Change],
        evicted: Option<&Ended>,
    ) {
        let log = self.log.join("\n");
        assert_eq!(answer, wanted, "an answer: {log}");
        for seat in &self.seats {
            let mine = changes.iter().filter(|change| change.session == seat.id);
            let mut wanted: Vec<_> = mine.map(|change| spell(&change.event(evicted))).collect();
            let mut told = std::mem::take(&mut *seat.told.lock().unwrap());
            wanted.sort();
            told.sort();
            assert_eq!(told, wanted, "events: {log}");
        }
    }
}

fn spell(event: &Event) -> String {
    format!("{event:?}")
}

async fn play(url: &str, seeds: u64, steps: usize) {
    for seed in 1..=seeds {
        let mut game = Match::new(url, seed).await;
        for _ in 0..steps {
            game.step().await;
        }
        game.lines_agree().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_follows_the_rule() {
    let dir = tempfile::tempdir().expect("a directory");
    play(
        &format!("sqlite:{}/locks.db", dir.path().display()),
        40,
        300,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_follows_the_rule() {
    let server = leasehold_testkit::servers::postgres::Postgres::start();
    play(&server.url(), 20, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_follows_the_rule() {
    let server = leasehold_testkit::servers::mariadb::MariaDb::start();
    play(&server.url(), 20, 300).await;
}
