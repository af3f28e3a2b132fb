//! `leasehold-lab`: histories and their checker, torture, and the lab of broken locks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use leasehold::engine::Clock;
use leasehold_lab::check::{Bounds, Demands, generate, judge};
use leasehold_lab::history::{assemble, read};
use leasehold_lab::simulation::Locks;
use leasehold_lab::simulation::campaign::{self, Enough};
use leasehold_lab::torture::{FaultKind, Plan, Work, faults_of, lease_of, torture, work};
use leasehold_lab::{Outcome, exhibits, explore, mutants, report};

/// Shows what locks do under faults, and judges it.
#[derive(Debug, Parser)]
#[command(name = "leasehold-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the exhibits of broken locks.
    List,
    /// Run exhibits: each broken lock, and the same schedule on Leasehold.
    Run {
        /// Which, or `all`.
        #[arg(required = true)]
        exhibits: Vec<String>,
        /// Where the timelines go.
        #[arg(long, default_value = "target/lab/exhibits")]
        into: PathBuf,
    },
    /// Hit an engine with faults while several processes lock, and judge what happened.
    Torture(TortureArgs),
    /// Judge histories: the files of one run.
    Check {
        /// The files, or folders of them.
        histories: Vec<PathBuf>,
        /// Judge so many generated holds instead, and say how long it took.
        #[arg(long)]
        generate: Option<usize>,
    },
    /// Run the real session, turns and guards in simulated time, one run per seed; ends at the first broken promise.
    Simulate {
        /// mutex, read-write, semaphore, many-and-again or in-order; all unless set.
        locks: Vec<Locks>,
        /// How many runs of each.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// Seed after seed until so many simulated hours of each have passed, instead of a number of runs.
        #[arg(long)]
        hours: Option<u64>,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
    },
    /// Run small random programs over the whole API in simulated time, one per seed, and shrink what breaks a promise.
    Explore {
        /// How many programs.
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Go on after a broken promise, and list all of them.
        #[arg(long)]
        all: bool,
    },
    /// Plant bugs in a copy of the source and see whether each is caught. Run it at the root of the source.
    Mutants {
        /// Only those whose name contains this, or one of these with commas between.
        #[arg(long)]
        only: Option<String>,
        /// Where the copy is built.
        #[arg(long, default_value = "target/lab/mutants")]
        into: PathBuf,
    },
    /// Add the rows of reports to the track record.
    Record {
        /// The reports.
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// The ledger.
        #[arg(long, default_value = "docs/track-record.md")]
        ledger: PathBuf,
    },
    /// A client of a lock; started by an exhibit.
    #[command(hide = true)]
    Client {
        lock: String,
        url: String,
        who: String,
        lease_ms: u64,
    },
    /// A worker of a torture; started by it.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Debug, Args)]
struct TortureArgs {
    /// An engine whose servers are started (file, sqlite, redis, redis-durable, redis-sentinel, redis-cluster, redlock,
    /// postgres, mariadb, zookeeper, zookeeper-ensemble, etcd, etcd-cluster, consul, consul-shared, consul-three), or the URL of running ones.
    url: String,
    /// For how long: 90s, 10m, 2h.
    #[arg(long = "for", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// Replays a schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which faults: kill, pause, evict, delay, cut, cut-to-server, cut-to-client, reset, server-kill, server-pause,
    /// leader-kill, failover, clock-step. All that can be made there unless set.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<FaultKind>,
    /// How many processes.
    #[arg(long, default_value_t = 6)]
    workers: u64,
    /// The lease of every lock: what suits the engine unless set.
    #[arg(long, value_parser = duration)]
    lease: Option<Duration>,
    /// The longest a holder rests between two steps: a tenth of the lease unless set.
    #[arg(long, value_parser = duration)]
    rest: Option<Duration>,
    /// Where the histories and the report go; `target/lab/ENGINE-SEED` unless set.
    #[arg(long)]
    into: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct WorkerArgs {
    #[arg(long)]
    url: String,
    #[arg(long)]
    who: String,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    gate: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    lease: u64,
    #[arg(long)]
    rest: u64,
    #[arg(long)]
    tasks: u64,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits]
        .parse()
        .map_err(|_| "a number and a unit: 400ms, 90s, 10m, 2h".to_owned())?;
    match &text[digits..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        _ => Err("a number and a unit: 400ms, 90s, 10m, 2h".into()),
    }
}

fn main() -> ExitCode {
    match obey(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("leasehold-lab: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything was as promised.
fn obey(command: Command) -> Outcome<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match command {
        Command::List => {
            exhibits::list();
            Ok(true)
        }
        Command::Run {
            exhibits: names,
            into,
        } => exhibits::run(&names, &into),
        Command::Torture(arguments) => runtime.block_on(torture_with(arguments)),
        Command::Check {
            generate: Some(holds),
            ..
        } => Ok(check_generated(holds)),
        Command::Check { histories, .. } => check(&histories),
        Command::Simulate {
            locks,
            seeds,
            hours,
            from,
        } => {
            let locks = if locks.is_empty() {
                Locks::ALL.to_vec()
            } else {
                locks
            };
            let enough = match hours {
                Some(hours) => Enough::Hours(hours),
                None => Enough::Seeds(seeds),
            };
            campaign::simulate_all(&locks, from, enough)
        }
        Command::Explore { seeds, from, all } => explore::campaign::report(from, seeds, all),
        Command::Mutants { only, into } => {
            std::fs::create_dir_all(&into)?;
            mutants::run(
                &std::env::current_dir()?,
                &std::fs::canonicalize(into)?,
                only.as_deref(),
            )
        }
        Command::Record { reports, ledger } => {
            reports
                .iter()
                .try_for_each(|report| report::record(report, &ledger))?;
            Ok(true)
        }
        Command::Client {
            lock,
            url,
            who,
            lease_ms,
        } => {
            let lease = Duration::from_millis(lease_ms);
            runtime.block_on(exhibits::act(&lock, &url, &who, lease))?;
            Ok(true)
        }
        Command::Worker(w) => {
            let lease = Duration::from_millis(w.lease);
            let worker = Work {
                url: w.url,
                who: w.who,
                log: w.log,
                gate: w.gate,
                seed: w.seed,
                lease,
                rest: Duration::from_millis(w.rest),
                tasks: w.tasks,
            };
            runtime.block_on(work(worker))?;
            Ok(true)
        }
    }
}

async fn torture_with(arguments: TortureArgs) -> Outcome<bool> {
    let engine = arguments.url.split(':').next().unwrap_or_default();
    let into = arguments
        .into
        .unwrap_or_else(|| format!("target/lab/{engine}-{}", arguments.seed).into());
    if into.exists() {
        std::fs::remove_dir_all(&into)?;
    }
    std::fs::create_dir_all(&into)?;
    let lease = arguments.lease.unwrap_or_else(|| lease_of(&arguments.url));
    let faults = match arguments.faults {
        none if none.is_empty() => faults_of(&arguments.url).to_vec(),
        chosen => chosen,
    };
    let plan = Plan {
        url: arguments.url,
        time: arguments.time,
        seed: arguments.seed,
        workers: arguments.workers,
        lease,
        rest: arguments.rest.unwrap_or(lease / 10),
        faults,
        program: std::env::current_exe()?,
        into: std::fs::canonicalize(into)?,
        progress: true,
    };
    let report = torture(&plan).await?;
    println!(
        "{}\nreport: {}",
        report.text,
        plan.into.join("report.json").display()
    );
    Ok(report.good)
}

fn check(histories: &[PathBuf]) -> Outcome<bool> {
    let mut records = Vec::new();
    for path in histories {
        if path.is_dir() {
            for entry in std::fs::read_dir(path)? {
                let path = entry?.path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == "jsonl")
                {
                    records.extend(read(&path)?);
                }
            }
        } else {
            records.extend(read(path)?);
        }
    }
    let bounds = Bounds {
        overtakes: 64,
        ..Bounds::default()
    };
    let verdict = judge(&assemble(records)?, &bounds, &Demands::default());
    println!("{verdict}");
    Ok(verdict.is_good())
}

fn check_generated(holds: usize) -> bool {
    let clock = Clock::boot();
    let history = generate::correct(holds, 1_000, 1);
    let (start, worked) = (clock.now(), processor_time());
    let verdict = judge(
        &history,
        &Bounds {
            stall: 10_000,
            ..Bounds::default()
        },
        &Demands {
            contended: 1,
            ..Demands::default()
        },
    );
    let took = (clock.now() - start) as f64 / 1e6;
    let worked = processor_time() - worked;
    println!("{verdict}\n{holds} holds judged in {took:.2} s, {worked:.2} s of them at work");
    verdict.is_good()
}

/// The processor time of this process, in seconds: a busy machine makes the clock on the wall say little.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
