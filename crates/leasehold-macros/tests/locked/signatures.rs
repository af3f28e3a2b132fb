//! What else is written on and in functions stays as it is.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold::{Client, locked};

use crate::{Problem, client, is_busy};

const fn send<T: Send>(future: T) -> T {
    future
}

/// The text is that of the function.
#[must_use = "kept"]
#[locked(locks, "x:{key}")]
#[cfg(test)]
async fn generic<'a, K, const N: usize>(
    locks: &Arc<Client>,
    key: K,
    values: &'a [u8; N],
) -> Result<&'a u8, Problem>
where
    K: Display + Debug + Send,
{
    if N == 0 {
        return Err(Problem::Body);
    }
    let text = format!("{key:?}");
    assert!(is_busy(locks, &format!("x:{text}")).await);
    values.last().ok_or(Problem::Body)
}

#[tokio::test]
async fn generics_and_lifetimes_stay() {
    let locks = Arc::new(client().await);
    let last = send(generic(&locks, 7, &[1, 2, 3])).await;
    assert_eq!(*last.unwrap(), 3);
    assert!(matches!(generic(&locks, 7, &[]).await, Err(Problem::Body)));
}

#[locked(locks, "x")]
async fn unnamed(
    locks: Client,
    upto: impl Into<u8> + Send,
) -> leasehold::Result<impl Iterator<Item = u8>> {
    let upto = upto.into();
    if upto == 0 {
        drop(locks.mutex("").lock().await?);
    }
    Ok(0..upto)
}

#[tokio::test]
async fn impl_trait_stays() {
    let locks = client().await;
    let numbers = send(unnamed(locks.clone(), 3)).await.unwrap();
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2]);
    assert!(unnamed(locks, 0).await.is_err());
}

struct Shop {
    locks: Client,
    left: u64,
}

impl Shop {
    fn locks(&self) -> &Client {
        &self.locks
    }

    #[locked(self.locks(), "stock:{item}")]
    async fn take(&mut self, item: u64, (most, least): (u64, u64)) -> Result<&mut u64, Problem> {
        self.left -= most.max(least);
        Ok(&mut self.left)
    }

    #[locked(self.locks, "stock:{left}", left = self.left)]
    async fn close(self) -> Result<Client, Problem> {
        assert!(is_busy(&self.locks, &format!("stock:{}", self.left)).await);
        Ok(self.locks)
    }
}

#[tokio::test]
async fn methods_borrow_and_move_their_self() {
    let locks = client().await;
    let mut shop = Shop { locks, left: 10 };
    *send(shop.take(42, (1, 3))).await.unwrap() += 1;
    assert_eq!(shop.left, 8);
    let locks = send(shop.close()).await.unwrap();
    assert!(!is_busy(&locks, "stock:8").await);
}

#[async_trait]
trait Sells {
    async fn sell(&mut self, item: String) -> Result<u64, Problem>;
}

#[async_trait]
impl Sells for Shop {
    #[locked(self.locks, "stock:{item}", try, busy = Err(Problem::Busy))]
    async fn sell(&mut self, item: String) -> Result<u64, Problem> {
        if !is_busy(&self.locks, &format!("stock:{item}")).await {
            return Err(Problem::Body);
        }
        drop(item);
        self.left = self.left.checked_sub(1).ok_or(Problem::Body)?;
        Ok(self.left)
    }
}

#[tokio::test]
async fn async_trait_stays() {
    let locks = client().await;
    let mut shop: Box<dyn Sells + Send> = Box::new(Shop {
        locks: locks.clone(),
        left: 1,
    });
    assert_eq!(send(shop.sell("a".to_owned())).await.unwrap(), 0);
    assert!(matches!(
        shop.sell("a".to_owned()).await,
        Err(Problem::Body)
    ));
    let _guard = locks.mutex("stock:a").lock().await.unwrap();
    assert!(matches!(
        shop.sell("a".to_owned()).await,
        Err(Problem::Busy)
    ));
}
