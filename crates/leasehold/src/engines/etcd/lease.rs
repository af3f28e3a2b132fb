//! The life of a lease: kept alive while its session lives, and revoked with it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::client::Client;

/// The tokens of a lease.
#[derive(Debug, Clone, Default)]
pub(super) struct Life {
    /// Cancelled once the lease does not exist, or is about to be revoked.
    pub(super) over: CancellationToken,
    /// Cancelled to revoke the lease.
    pub(super) closing: CancellationToken,
    /// Cancelled once nothing is done for the lease any more.
    pub(super) closed: CancellationToken,
}

/// How long a revocation may take. A lease that is not revoked ends by itself.
const REVOKING: Duration = Duration::from_secs(2);

/// Keeps a lease alive.
pub(super) async fn keep(client: Client, id: i64, ttl: Duration, life: Life) {
    let _closed = life.closed.clone().drop_guard();
    let _over = life.over.clone().drop_guard();
    tokio::select! {
        biased;
        () = life.closing.cancelled() => {}
        () = life.over.cancelled() => {}
        () = client.ended().cancelled() => return,
        () = beat(&client, id, ttl) => return,
    }
    let _ = tokio::time::timeout(REVOKING, client.revoke(id)).await;
}

/// Ends when the lease does not exist.
async fn beat(client: &Client, id: i64, ttl: Duration) {
    loop {
        tokio::time::sleep(ttl / 3).await;
        loop {
            let Ok(connection) = client.up().await else {
                return;
            };
            match connection.beat(id).await {
                Ok(lease) if lease.ttl <= 0 => return,
                Ok(_) => break,
                // The connection is given up: the next one is asked.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
