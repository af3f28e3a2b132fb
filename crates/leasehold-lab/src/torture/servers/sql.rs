//! PostgreSQL and MariaDB: what they have answered, they have after a crash.

use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

use super::{FaultKind, Servers};

/// One server of either kind: they are hit alike.
macro_rules! database {
    ($name:ident, $server:ty, $pause:ident) => {
        /// One server.
        #[derive(Debug)]
        pub(super) struct $name($server);

        impl $name {
            pub(super) fn start() -> Self {
                Self(<$server>::start())
            }
        }

        impl Servers for $name {
            fn url(&self) -> String {
                self.0.url()
            }

            fn ports(&self) -> Vec<u16> {
                vec![self.0.port]
            }

            fn begin(&mut self, kind: FaultKind, _: u64) {
                match kind {
                    FaultKind::ServerPause => self.0.$pause(true),
                    _ => self.0.kill(),
                }
            }

            fn end(&mut self, kind: FaultKind) {
                match kind {
                    FaultKind::ServerPause => self.0.$pause(false),
                    _ => self.0.restart(),
                }
            }
        }
    };
}

database!(PostgreSql, Postgres, freeze);
database!(Maria, MariaDb, pause);
