//! One run: workers, the schedule of faults, the drain, the verdict.

use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, Options};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Plan;
use super::deployment::{Deployment, deployment};
use super::faults::{Fault, FaultKind, schedule};
use super::gate::Gate;
use super::hand::{NAMES, TURNS, take_away, take_whole};
use super::workers::Worker;
use crate::Outcome;
use crate::check::{Bounds, Demands, judge};
use crate::history::{Log, What, assemble, read};
use crate::report::Report;

/// Runs a plan to its end and judges what happened.
///
/// # Errors
/// If the run itself could not be made. Broken promises are in the report.
pub async fn torture(plan: &Plan) -> Outcome<Report> {
    std::fs::create_dir_all(&plan.into)?;
    let deployment = deployment(&plan.url, &plan.into)?;
    if !deployment.has_server() && plan.faults.iter().any(|fault| fault.of_server()) {
        return Err(format!("{} has no server of ours to be hit", plan.url).into());
    }
    let log = Log::file(&plan.into.join("lab.jsonl"), "lab")?;
    let gate = Gate::open(
        &plan.into.join("gate.sock"),
        &Log::file(&plan.into.join("gate.jsonl"), "gate")?,
    )?;
    let url = deployment.url();
    let client = Options::new().lease(plan.lease).connect(&url).await?;
    let start = |index| Worker::start(plan, &url, &gate, index, 0);
    let workers = (0..plan.workers).map(start).collect::<Outcome<_>>()?;
    let (resumes, faults) = (Vec::new(), 0);
    let mut run = Run {
        plan,
        url,
        log,
        gate,
        client,
        deployment,
        workers,
        resumes,
        faults,
    };
    run.hit_and_wait().await?;
    run.drain().await?;
    run.judge()
}

struct Run<'a> {
    plan: &'a Plan,
    url: String,
    log: Log,
    gate: Gate,
    client: Client,
    deployment: Box<dyn Deployment>,
    workers: Vec<Worker>,
    /// Who goes on when; the life tells whether it is still the one that was stopped.
    resumes: Vec<(Instant, Resume)>,
    faults: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resume {
    Worker(usize, u64),
    Server(FaultKind),
}

impl Run<'_> {
    async fn hit_and_wait(&mut self) -> Outcome<()> {
        let start = Instant::now();
        let mut faults = schedule(self.plan).into_iter().peekable();
        let mut tick = start + Duration::from_secs(1);
        let end = start + self.plan.time;
        while Instant::now() < end {
            let next_fault = faults.peek().map_or(end, |fault| start + fault.at);
            let next_resume = self.resumes.iter().map(|(at, _)| *at).min().unwrap_or(end);
            sleep_until(next_fault.min(next_resume).min(tick).min(end)).await;
            let now = Instant::now();
            self.resume_those_due(now)?;
            if let Some(fault) = faults.next_if(|fault| start + fault.at <= now) {
                self.hit(&fault).await?;
            }
            if now >= tick {
                tick += Duration::from_secs(1);
                self.say(now - start);
            }
        }
        self.resume_those_due(end + Duration::from_secs(3600))
    }

    fn say(&self, elapsed: Duration) {
        if self.plan.progress {
            let (accepted, refused) = self.gate.counts();
            let left = self.plan.time.saturating_sub(elapsed).as_secs();
            println!(
                "{:>4}s  faults {}  effects accepted {accepted}  refused {refused}  {left}s left",
                elapsed.as_secs(),
                self.faults
            );
        }
    }

    fn resume_those_due(&mut self, now: Instant) -> Outcome<()> {
        let (due, later) = self.resumes.drain(..).partition(|(at, _)| *at <= now);
        self.resumes = later;
        let due: Vec<(Instant, Resume)> = due;
        for (_, resume) in due {
            match resume {
                Resume::Worker(index, life) if self.workers[index].life() == life => {
                    self.workers[index].go_on(&self.log)?
                }
                Resume::Worker(..) => {}
                Resume::Server(kind) => {
                    match kind {
                        FaultKind::ServerKill => self.deployment.restart()?,
                        _ => self.deployment.resume()?,
                    }
                    self.log.note(
                        0,
                        What::Fault {
                            fault: kind.word().into(),
                            on: false,
                        },
                    );
                }
            }
        }
        Ok(())
    }

    async fn hit(&mut self, fault: &Fault) -> Outcome<()> {
        self.faults += 1;
        let (index, until) = (fault.victim as usize, Instant::now() + fault.lasts);
        match fault.kind {
            FaultKind::Kill => {
                self.workers[index].replace(self.plan, &self.url, &self.gate, &self.log)?
            }
            FaultKind::Pause => {
                if self.workers[index].stop(&self.log)? {
                    self.resumes
                        .push((until, Resume::Worker(index, self.workers[index].life())));
                }
            }
            FaultKind::Evict => take_away(&self.client, fault.name, &self.log).await?,
            kind if self
                .resumes
                .iter()
                .any(|(_, resume)| matches!(resume, Resume::Server(_))) =>
            {
                // One fault of the server at a time.
                let _ = kind;
            }
            kind => {
                self.log.note(
                    0,
                    What::Fault {
                        fault: kind.word().into(),
                        on: true,
                    },
                );
                match kind {
                    FaultKind::ServerKill => self.deployment.kill()?,
                    _ => self.deployment.pause()?,
                }
                self.resumes.push((until, Resume::Server(kind)));
            }
        }
        Ok(())
    }

    /// Everybody ends; then each name must be free, and nothing may be left of it.
    async fn drain(&mut self) -> Outcome<()> {
        self.workers.iter_mut().for_each(Worker::dismiss);
        let deadline = Instant::now() + Duration::from_secs(30);
        for worker in &mut self.workers {
            while !worker.has_ended()? {
                if Instant::now() > deadline {
                    return Err(format!("{worker:?} did not end within 30 s").into());
                }
                sleep(Duration::from_millis(5)).await;
            }
        }
        for (name, kind) in NAMES {
            let whole = take_whole(&self.client, name, kind);
            let guard = timeout(self.plan.lease * 4, whole).await;
            let guard =
                guard.map_err(|_| format!("{name} is not free after everybody has gone"))??;
            let _ = guard.release().await?;
        }
        let end = Instant::now() + self.plan.lease * 3;
        let mut lines = self.client.inspect(&Query::all()).await?;
        while !lines.is_empty() && Instant::now() < end {
            sleep(Duration::from_millis(5)).await;
            lines = self.client.inspect(&Query::all()).await?;
        }
        for line in lines {
            let count = (line.holders.len() + line.waiters.len()) as u64;
            self.log.note(
                0,
                What::Left {
                    name: line.name.to_string(),
                    count,
                },
            );
        }
        self.gate.note_counts(&self.log);
        let _ = self.client.shutdown(Duration::from_secs(5)).await?;
        Ok(())
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
        let bounds = Bounds {
            overtakes: u64::from(TURNS) * self.plan.workers,
            told: 1_000_000,
            stall: 2_000_000,
            overlap: 0,
        };
        let hits = u64::from(!self.plan.faults.is_empty());
        let demands = Demands {
            contended: 1,
            faults_held: hits,
            refused: 0,
        };
        let verdict = judge(&assemble(records)?, &bounds, &demands);
        let report = Report::new(self.plan, verdict);
        report.save(&self.plan.into.join("report.json"))?;
        Ok(report)
    }
}
