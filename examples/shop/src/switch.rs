//! Where a request may be told to stop or to die. A process is killed, or stands still, at any point of its work and seldom when a test
//! looks; here it happens at a point that a request names.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;

use crate::answer::{Outcome, Problem};
use crate::app::App;

/// A point in the way of a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Point {
    /// The lock is taken, its expiry is not set yet.
    Taken,
    /// The lock is held and the stock was read; it is not written yet.
    Held,
    /// The lock was looked at and is this request's; it is not deleted yet.
    Looked,
}

/// What a request is told beside what it buys: `?pause=held&as=a`, `?crash=taken`.
#[derive(Debug, Default, Deserialize)]
pub struct Switch {
    /// The process ends there, as if it was killed.
    pub crash: Option<Point>,
    /// The request stands still there until it is told to [go](Switch::go).
    pub pause: Option<Point>,
    /// Its name while it stands still.
    #[serde(rename = "as", default)]
    pub name: String,
}

/// How long a request stands still at most.
const PATIENCE: Duration = Duration::from_secs(60);

impl Switch {
    /// Refuses switches unless the instance was started with `--switches yes`.
    ///
    /// # Errors
    /// 403.
    pub fn allowed(self, app: &App) -> Outcome<Self> {
        if app.settings.switches || (self.crash.is_none() && self.pause.is_none()) {
            return Ok(self);
        }
        let what = "this instance takes no switches: start it with --switches yes";
        Err(Problem::refused(StatusCode::FORBIDDEN, what))
    }

    /// The key that says that a request stands still.
    pub fn paused(name: &str) -> String {
        format!("shop:paused:{name}")
    }

    /// The key that lets it go on.
    pub fn go(name: &str) -> String {
        format!("shop:go:{name}")
    }

    /// Stops or dies here, if it was told to.
    ///
    /// # Errors
    /// Those of Redis, where requests are told to go on.
    pub async fn at(&self, point: Point, app: &App) -> Outcome<()> {
        if self.crash == Some(point) {
            std::process::exit(137);
        }
        if self.pause != Some(point) {
            return Ok(());
        }
        app.stock.set(&Self::paused(&self.name)).await?;
        let waits = async {
            while !app.stock.is_set(&Self::go(&self.name)).await? {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        };
        let gone_on = tokio::time::timeout(PATIENCE, waits).await;
        let what = "the request stood still for a minute and was not told to go on";
        gone_on.map_err(|_| Problem::refused(StatusCode::GATEWAY_TIMEOUT, what))?
    }
}
