//! The servers of the exhibits, each started when it is first needed.

use std::cell::OnceCell;

use leasehold_testkit::poll::until;
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::pgbouncer::PgBouncer;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::redlock::Nodes;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

/// Which server an exhibit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// One that keeps nothing on disk.
    Redis,
    /// A master and its replica, behind one address.
    RedisPair,
    /// Three that know nothing of each other.
    Redlock,
    MariaDb,
    /// PostgreSQL behind a pooler in transaction mode.
    Pooler,
    ZooKeeper,
}

#[derive(Debug, Default)]
pub(super) struct Servers {
    redis: Option<Redis>,
    pair: Option<Pair>,
    redlock: OnceCell<Nodes>,
    mariadb: OnceCell<MariaDb>,
    pooler: OnceCell<(PgBouncer, Postgres)>,
    zookeeper: OnceCell<ZooKeeper>,
}

impl Servers {
    /// The URL of a server that knows of no lock.
    pub(super) fn url(&mut self, on: On) -> String {
        match on {
            On::Redis => {
                let redis = self.redis();
                assert_eq!(redis.cli("FLUSHALL").trim(), "OK");
                redis.url()
            }
            On::RedisPair => {
                let pair = Pair::start();
                let url = format!("redis://127.0.0.1:{}", pair.front.port);
                self.pair = Some(pair);
                url
            }
            On::Redlock => self.redlock.get_or_init(|| Nodes::start(3)).url(),
            On::MariaDb => self.mariadb().url(),
            On::Pooler => {
                let start = || {
                    let server = Postgres::start();
                    (PgBouncer::before(&server, 3), server)
                };
                self.pooler.get_or_init(start).0.url()
            }
            On::ZooKeeper => format!("{}/locks", self.zookeeper().url()),
        }
    }

    pub(super) fn redis(&mut self) -> &mut Redis {
        self.redis.get_or_insert_with(Redis::start)
    }

    pub(super) fn mariadb(&self) -> &MariaDb {
        self.mariadb.get_or_init(MariaDb::start)
    }

    pub(super) fn zookeeper(&self) -> &ZooKeeper {
        self.zookeeper.get_or_init(ZooKeeper::start)
    }

    /// The replica does not know of writes to the master from here on.
    pub(super) fn cut_replication(&mut self) {
        if let Some(pair) = &self.pair {
            pair.between.set(Way::ToClient, Fate::Hold);
        }
    }

    /// The master dies, and the replica has its address.
    pub(super) fn fail_over(&mut self) {
        if let Some(pair) = &mut self.pair {
            pair.master.kill();
            assert_eq!(pair.replica.cli("REPLICAOF NO ONE").trim(), "OK");
            pair.front.turn_to(pair.replica.port);
        }
    }
}

/// A master and its replica.
#[derive(Debug)]
struct Pair {
    /// Where clients connect: before the master, later before the replica.
    front: Proxy,
    /// Where the replica connects.
    between: Proxy,
    master: Redis,
    replica: Redis,
    /// Follows the replica, so that the replica has one when it takes over.
    _follower: Redis,
}

impl Pair {
    fn start() -> Self {
        let master = Redis::with("--save  --repl-diskless-sync-delay 0");
        let between = Proxy::before(master.port);
        let follow = format!(
            "--save  --replicaof 127.0.0.1 {} --repl-diskless-sync-delay 0",
            between.port
        );
        let replica = Redis::with(&follow);
        let after = format!("--save  --replicaof 127.0.0.1 {}", replica.port);
        let follower = Redis::with(&after);
        for node in [&replica, &follower] {
            until("the replicas have caught up", || {
                let seen = node.cli("INFO replication");
                let up = seen.contains("master_link_status:up");
                up.then_some(()).ok_or(seen)
            });
        }
        let front = Proxy::before(master.port);
        Self {
            front,
            between,
            master,
            replica,
            _follower: follower,
        }
    }
}
