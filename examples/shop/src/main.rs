//! One instance of the shop.

use leasehold_shop::app::{App, Failed};
use leasehold_shop::routes::routes;
use leasehold_shop::settings::Settings;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let settings = Settings::parse(std::env::args().skip(1))?;
    let listener = tokio::net::TcpListener::bind(&settings.listen).await?;
    axum::serve(listener, routes(App::open(settings).await?)).await?;
    Ok(())
}
