//! One instance of the shop.

use std::time::Duration;

use leasehold_shop::app::{App, Failed};
use leasehold_shop::routes::routes;
use leasehold_shop::settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

/// How long sales that have begun may take after the instance was told to end.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let settings = Settings::parse(std::env::args().skip(1))?;
    let listener = tokio::net::TcpListener::bind(&settings.listen).await?;
    let app = App::open(settings).await?;
    let locks = app.locks.clone();
    let mut told = signal(SignalKind::terminate())?;
    let ended = async move {
        let _ = told.recv().await;
    };
    let served = axum::serve(listener, routes(app)).with_graceful_shutdown(ended);
    served.await?;
    // What is held is given back: the other instance need not wait for a lease.
    let _ = locks.shutdown(PATIENCE).await?;
    Ok(())
}
