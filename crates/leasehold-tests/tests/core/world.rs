//! Two clients of one memory engine in simulated time; one of them meets the faults of a plan.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{Clock, Engine, LineView, Memory, Query};
use leasehold::{Client, ConnectOptions};
use leasehold_testkit::faulty::{Faulty, Plan};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// One memory engine, one client through the faults of a plan and one without.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) plan: Plan,
    /// Meets the faults.
    pub(crate) a: Client,
    /// Does not.
    pub(crate) b: Client,
    pub(crate) engine: Memory,
}

impl World {
    pub(crate) async fn new() -> Self {
        let (clock, plan) = (Clock::simulated(), Plan::default());
        let engine = Memory::new(clock.clone());
        let open = |engine: Arc<dyn Engine>| {
            let options = ConnectOptions::new().lease(LEASE).clock(clock.clone());
            options.open(engine)
        };
        let a = open(Arc::new(Faulty::new(engine.clone(), &plan)))
            .await
            .expect("opens");
        let b = open(Arc::new(engine.clone())).await.expect("opens");
        Self {
            clock,
            plan,
            a,
            b,
            engine,
        }
    }

    pub(crate) async fn idle(&self) -> bool {
        let lines = self.engine.inspect(&Query::all()).await;
        lines.expect("inspect works").is_empty()
    }

    /// The line of a name, as the engine has it.
    pub(crate) async fn engine_line(&self, name: &str) -> LineView {
        let lines = self.engine.inspect(&Query::all()).await;
        let mut lines = lines.expect("inspect works").into_iter();
        lines
            .find(|line| line.name.as_str() == name)
            .expect("in use")
    }

    pub(crate) fn since(&self, start: u64) -> Duration {
        Duration::from_micros(self.clock.now() - start)
    }
}
