//! Owners, which may re-enter.

use std::sync::atomic::{AtomicU64, Ordering};

/// May re-enter a lock that it holds, in every task that has it.
///
/// By default a re-entrant lock belongs to the current tokio task (to the thread, in the blocking API). An explicit
/// owner can travel between tasks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let owner = leasehold::Owner::new();
/// let outer = client.mutex("x").owner(&owner).lock().await?;
/// let (client, me) = (client.clone(), owner.clone());
/// let inner = tokio::spawn(async move { client.mutex("x").owner(&me).lock().await }).await.unwrap()?;
/// assert_eq!(inner.fence(), outer.fence());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// A new owner, equal only to its clones.
    ///
    /// ```
    /// use leasehold::Owner;
    /// assert_ne!(Owner::new(), Owner::new());
    /// ```
    #[expect(
        clippy::new_without_default,
        reason = "a default would hide that every owner is another"
    )]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The running code: a task where there is one, the thread otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Task(tokio::task::Id),
    Thread(std::thread::ThreadId),
    Owner(u64),
}

impl Who {
    /// The current task, or the current thread outside of one.
    pub(crate) fn runs() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Thread(std::thread::current().id()), Self::Task)
    }
}

impl From<&Owner> for Who {
    fn from(owner: &Owner) -> Self {
        Self::Owner(owner.0)
    }
}
