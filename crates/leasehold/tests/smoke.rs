//! smoke
use std::time::Duration;
#[tokio::test]
async fn smoke() -> leasehold::Result<()> {
    let a = leasehold::connect("memory:smoke").await?;
    let b = leasehold::connect("memory:smoke").await?;
    let g = a.mutex("x").lock().await?;
    assert!(b.mutex("x").try_lock().await?.is_none());
    let f = g.fence();
    let waiter = tokio::spawn(async move { b.mutex("x").lock().await });
    tokio::task::yield_now().await;
    g.release().await?;
    let g2 = waiter.await.unwrap()?;
    assert!(g2.fence() > f);
    drop(g2);
    assert!(
        a.mutex("x")
            .lock_within(Duration::from_secs(2))
            .await?
            .is_some()
    );
    Ok(())
}
