//! Taking locks away from their holders, blocking.

use super::Client;
use crate::error::Result;
use crate::fence::Fence;

impl Client {
    /// Takes a lock away from its holders; see [`leasehold::Client::evict`](crate::Client::evict).
    ///
    /// # Errors
    /// If the engine cannot do it, or the name is not one.
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// assert_eq!(client.evict("x", "no process holds it")?, 0);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn evict(&self, name: impl AsRef<str>, why: &str) -> Result<u32> {
        self.background.block_on(self.client.evict(name, why))
    }

    /// Takes it away from the holder of one fence; see [`leasehold::Client::evict_fence`](crate::Client::evict_fence).
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.mutex("x").lock()?;
    /// assert_eq!(client.evict_fence("x", guard.fence(), "the job hangs")?, 1);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn evict_fence(&self, name: impl AsRef<str>, fence: Fence, why: &str) -> Result<u32> {
        let evict = self.client.evict_fence(name, fence, why);
        self.background.block_on(evict)
    }

    /// Asks the holders of a lock to give it up; see
    /// [`leasehold::Client::ask_to_release`](crate::Client::ask_to_release).
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// assert_eq!(client.ask_to_release("x")?, 0);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ask_to_release(&self, name: impl AsRef<str>) -> Result<u32> {
        self.background.block_on(self.client.ask_to_release(name))
    }

    /// Asks the holder of one fence; see
    /// [`leasehold::Client::ask_fence_to_release`](crate::Client::ask_fence_to_release).
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.mutex("x").lock()?;
    /// assert_eq!(client.ask_fence_to_release("x", guard.fence())?, 1);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ask_fence_to_release(&self, name: impl AsRef<str>, fence: Fence) -> Result<u32> {
        let ask = self.client.ask_fence_to_release(name, fence);
        self.background.block_on(ask)
    }
}
