//! One run: workers, the schedule of faults, the drain, the verdict.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Plan;
use super::asked::{Asked, unasked};
use super::deployment::{Deployment, Shared, faults_of, with_servers};
use super::drain::drain;
use super::faults::{Fault, FaultKind, LONGEST_OVERTIME, schedule};
use super::gate::Gate;
use super::locks::take_away;
use super::network::Network;
use super::servers::LONGEST_STEP;
use super::workers::Worker;
use crate::Outcome;
use crate::check::{Demands, judge, simple};
use crate::history::{Log, What, assemble, read};
use crate::report::Report;

/// Runs a plan to its end and judges what happened.
///
/// # Errors
/// If the run itself could not be made. Broken promises are in the report.
pub async fn torture(plan: &Plan) -> Outcome<Report> {
    let cannot = |kind: &&FaultKind| !faults_of(&plan.url).contains(kind);
    if let Some(kind) = plan.faults.iter().find(cannot) {
        return Err(format!("{} cannot be made on {}", kind.word(), plan.url).into());
    }
    std::fs::create_dir_all(&plan.into)?;
    let (url, workers, into) = (plan.url.clone(), plan.workers, plan.into.clone());
    let set_up = move || Deployment::new(&url, workers, &into);
    let deployment = tokio::task::spawn_blocking(set_up).await??;
    let log = Log::file(&plan.into.join("lab.jsonl"), "lab")?;
    let gate = Gate::open(
        &plan.into.join("gate.sock"),
        &Log::file(&plan.into.join("gate.jsonl"), "gate")?,
    )?;
    let options = ConnectOptions::new().lease(plan.lease);
    let client = options.connect(&deployment.url).await?;
    let start = |index| Worker::start(plan, &deployment.url_of(index), &gate, index, 0);
    let workers = (0..plan.workers).map(start).collect::<Outcome<_>>()?;
    let asked = Asked::of(plan, &client.guarantees());
    let mut run = Run {
        plan,
        log,
        gate,
        client,
        deployment,
        workers,
        asked,
        resumes: Vec::new(),
        disturbed: JoinSet::new(),
        places: HashMap::new(),
        postponed: VecDeque::new(),
        made: BTreeMap::new(),
    };
    run.hit_and_wait().await?;
    drain(&mut run).await?;
    run.judge()
}

pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) log: Log,
    pub(super) gate: Gate,
    pub(super) client: Client,
    deployment: Deployment,
    pub(super) workers: Vec<Worker>,
    pub(super) asked: Asked,
    /// The stopped workers, and when they go on; the life tells whether it is still the one that was stopped.
    resumes: Vec<(Instant, usize, u64)>,
    /// The disturbances of servers and networks now, and the places where.
    disturbed: JoinSet<Outcome<Place>>,
    /// Where something is wrong, or was until then.
    places: HashMap<Place, Option<Instant>>,
    /// Faults of the servers that wait their turn.
    postponed: VecDeque<Fault>,
    made: BTreeMap<FaultKind, u64>,
}

/// Where one fault at a time is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Servers,
    Network(u64),
}

impl Run<'_> {
    async fn hit_and_wait(&mut self) -> Outcome<()> {
        let start = Instant::now();
        let mut faults = schedule(self.plan).into_iter().peekable();
        let mut tick = start + Duration::from_secs(1);
        let mut end = start + self.plan.time;
        while Instant::now() < end {
            let next_fault = faults.peek().map_or(end, |fault| start + fault.at);
            let next_resume = self.resumes.iter().map(|(at, ..)| *at).min().unwrap_or(end);
            sleep_until(next_fault.min(next_resume).min(tick).min(end)).await;
            let now = Instant::now();
            self.resume_those_due(now)?;
            self.notice_ends()?;
            if let Some(fault) = faults.next_if(|fault| start + fault.at <= now) {
                self.hit(&fault).await?;
            }
            if let Some(fault) = self.postponed.front().copied()
                && self.disturb(fault)
            {
                self.count(fault.kind);
                let _ = self.postponed.pop_front();
            }
            if now >= tick {
                tick += Duration::from_secs(1);
                self.say(now - start);
            }
            // On a busy machine a server may take so long to come back that a kind was not made yet.
            let missing = self
                .plan
                .faults
                .iter()
                .any(|kind| !self.made.contains_key(kind));
            let soon = now + Duration::from_secs(1);
            if missing && end < soon && now - start < self.plan.time + LONGEST_OVERTIME {
                // From now: this turn of the loop may have waited for a server beyond the end.
                end = soon;
            }
        }
        self.resume_those_due(end + Duration::from_secs(3600))?;
        while let Some(over) = self.disturbed.join_next().await {
            let _ = over??;
        }
        match self.deployment.servers() {
            Some(servers) => note_moves(&servers, &self.log).await,
            None => Ok(()),
        }
    }

    fn say(&self, elapsed: Duration) {
        if self.plan.progress {
            let (accepted, refused) = self.gate.counts();
            let left = self.plan.time.saturating_sub(elapsed).as_secs();
            println!(
                "{:>4}s  faults {}  effects accepted {accepted}  refused {refused}  {left}s left",
                elapsed.as_secs(),
                self.made.values().sum::<u64>()
            );
        }
    }

    fn resume_those_due(&mut self, now: Instant) -> Outcome<()> {
        let (due, later): (Vec<_>, _) = self.resumes.drain(..).partition(|(at, ..)| *at <= now);
        self.resumes = later;
        for (_, index, life) in due {
            if self.workers[index].life() == life {
                self.workers[index].go_on(&self.log)?;
            }
        }
        Ok(())
    }

    fn notice_ends(&mut self) -> Outcome<()> {
        while let Some(over) = self.disturbed.try_join_next() {
            let _ = self.places.insert(over??, Some(Instant::now()));
        }
        Ok(())
    }

    /// Whether nothing is wrong there, and servers have had some time since the last fault.
    fn is_calm(&self, place: Place) -> bool {
        match self.places.get(&place) {
            None => true,
            Some(None) => false,
            Some(Some(since)) => place != Place::Servers || since.elapsed() > self.plan.lease * 3,
        }
    }

    async fn hit(&mut self, fault: &Fault) -> Outcome<()> {
        let (kind, index) = (fault.kind, fault.victim as usize);
        let made = match kind {
            FaultKind::Kill => {
                let url = self.deployment.url_of(fault.victim);
                self.workers[index].replace(self.plan, &url, &self.gate, &self.log)?;
                true
            }
            FaultKind::Pause => {
                let stopped = self.workers[index].stop(&self.log)?;
                if stopped {
                    let until = Instant::now() + fault.lasts;
                    self.resumes
                        .push((until, index, self.workers[index].life()));
                }
                stopped
            }
            // While the servers are out of order it is not known whether an eviction happened.
            FaultKind::Evict if self.places.get(&Place::Servers) == Some(&None) => false,
            FaultKind::Evict => self.evict(fault.draw).await?,
            // Servers are hit one fault after the other, each kind in its turn.
            kind if kind.of_server() => {
                if self.postponed.iter().all(|waits| waits.kind != kind) {
                    self.postponed.push_back(*fault);
                }
                false
            }
            _ => self.disturb(*fault),
        };
        if made {
            self.count(kind);
        }
        Ok(())
    }

    /// Takes one of the held locks away; whether there was one.
    async fn evict(&self, draw: u64) -> Outcome<bool> {
        let lines = match self.client.inspect(&Query::all()).await {
            Ok(lines) => lines,
            // Not yet connected again after the last fault, or a worker stands still inside a transaction.
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let held: Vec<_> = lines
            .iter()
            .filter(|line| !line.holders.is_empty())
            .collect();
        match held.len() as u64 {
            0 => Ok(false),
            held_now => {
                let name = held[(draw % held_now) as usize].name.as_str();
                take_away(&self.client, name, &self.log).await
            }
        }
    }

    /// Begins a fault of the servers or of a worker's network, one at a time in each place; whether it did.
    fn disturb(&mut self, fault: Fault) -> bool {
        let place = match fault.kind.of_server() {
            true => Place::Servers,
            false => Place::Network(fault.victim),
        };
        if !self.is_calm(place) {
            return false;
        }
        let log = self.log.clone();
        let (servers, network) = (
            self.deployment.servers(),
            self.deployment.network(fault.victim),
        );
        let _ = match (place, servers, network) {
            (Place::Servers, Some(servers), _) => {
                self.disturbed.spawn(hit_servers(servers, fault, log))
            }
            (Place::Network(_), _, Some(network)) => {
                self.disturbed.spawn(hit_network(network, fault, log))
            }
            _ => return false,
        };
        let _ = self.places.insert(place, None);
        true
    }

    fn count(&mut self, kind: FaultKind) {
        *self.made.entry(kind).or_default() += 1;
    }

    fn judge(&self) -> Outcome<Report> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.plan.into)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                records.extend(read(&path)?);
            }
        }
        let demands = Demands {
            contended: 1,
            faults_held: u64::from(!self.plan.faults.is_empty()),
            refused: 0,
        };
        let mut history = assemble(records.clone())?;
        self.asked.excuse(&mut history, &records);
        let mut verdict = judge(&history, &self.asked.bounds, &demands);
        verdict.compare(simple::overlaps(
            &records,
            &self.asked.lossy_times(&records),
        ));
        let report = Report::new(self.plan, &self.asked.text, &self.made, &verdict);
        report.save(&self.plan.into.join("report.json"))?;
        Ok(report)
    }
}

/// Hits the servers for a while.
async fn hit_servers(servers: Shared, fault: Fault, log: Log) -> Outcome<Place> {
    let Fault { kind, draw, .. } = fault;
    let note = |on| {
        let fault = kind.word().into();
        log.note(0, What::Fault { fault, on });
    };
    note_moves(&servers, &log).await?;
    note(true);
    with_servers(&servers, move |servers| servers.begin(kind, draw)).await?;
    sleep(match kind {
        // For so long the replicas hear nothing before the master dies.
        FaultKind::Failover => fault.lasts.min(Duration::from_millis(300)),
        _ => fault.lasts,
    })
    .await;
    with_servers(&servers, move |servers| servers.end(kind)).await?;
    if kind == FaultKind::ClockStep {
        // Grants from before the clock went back last longer by so much.
        sleep(LONGEST_STEP).await;
    }
    note(false);
    Ok(Place::Servers)
}

/// Notes a fault of the servers that was not ours: it began at an unknown time since all was well.
async fn note_moves(servers: &Shared, log: &Log) -> Outcome<()> {
    if let Some((kind, since)) = with_servers(servers, |servers| servers.moved()).await? {
        let fault = |on| What::Fault {
            fault: unasked(kind),
            on,
        };
        log.note_at(since, 0, fault(true));
        log.note(0, fault(false));
    }
    Ok(())
}

/// Disturbs a worker's network for a while.
async fn hit_network(network: Arc<Network>, fault: Fault, log: Log) -> Outcome<Place> {
    let worker = format!("w{}", fault.victim);
    log.note(0, What::Cut(worker.clone()));
    network.begin(fault.kind, fault.draw);
    sleep(fault.lasts).await;
    network.end();
    log.note(0, What::Mended(worker));
    Ok(Place::Network(fault.victim))
}
