//! PostgreSQL and MariaDB: answered writes survive a crash.

use leasehold_testkit::servers::database::Setup;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

use super::{FaultKind, Servers, step};

/// One server of either kind: they are hit alike.
macro_rules! database {
    ($name:ident, $server:ty, $pause:ident, $setting:literal) => {
        /// One server that does not wait for its disk, with a clock of its own.
        #[derive(Debug)]
        pub(super) struct $name($server);

        impl $name {
            pub(super) fn start() -> Self {
                Self(<$server>::set_up(&Setup {
                    settings: &[$setting],
                    clock: true,
                    ..Setup::default()
                }))
            }
        }

        impl Servers for $name {
            fn url(&self) -> String {
                self.0.url()
            }

            fn ports(&self) -> Vec<u16> {
                vec![self.0.port]
            }

            fn begin(&mut self, kind: FaultKind, draw: u64) {
                match kind {
                    FaultKind::ServerPause => self.0.$pause(true),
                    FaultKind::ClockStep => self.0.step(step(draw)),
                    _ => self.0.kill(),
                }
            }

            fn end(&mut self, kind: FaultKind) {
                match kind {
                    FaultKind::ServerPause => self.0.$pause(false),
                    FaultKind::ClockStep => self.0.step(0),
                    _ => self.0.restart(),
                }
            }
        }
    };
}

database!(PostgreSql, Postgres, freeze, "fsync=off");
database!(Maria, MariaDb, pause, "--innodb-flush-log-at-trx-commit=2");
