//! The memory of a claim that may be on some node.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::claim::Claim;
use crate::engine::{Held, Standing};
use crate::fence::{FENCE_BLOCK, Fence};

/// A claim that may be on some node.
pub(super) struct Entry {
    pub(super) claim: Claim,
    /// The fence once it holds; 0 before.
    pub(super) fence: AtomicU64,
    /// Nothing more is to be tried for it.
    pub(super) over: AtomicBool,
    /// Held during a try, so that a release comes after it.
    pub(super) talk: tokio::sync::Mutex<()>,
    /// Which nodes said that it may be free, and the word that enough did.
    pub(super) hints: AtomicU32,
    pub(super) hinted: Notify,
    /// How many messages said that it was evicted, and are not looked into yet.
    pub(super) evictions: AtomicU32,
}

impl Entry {
    pub(super) fn new(claim: &Claim) -> Self {
        Self {
            claim: claim.clone(),
            fence: AtomicU64::new(0),
            over: AtomicBool::new(false),
            talk: tokio::sync::Mutex::default(),
            hints: AtomicU32::new(0),
            hinted: Notify::new(),
            evictions: AtomicU32::new(0),
        }
    }

    /// What a claim that waits is told. The waiting is done in this process, so a heartbeat only has to say so.
    pub(super) fn waits(&self, ahead: u32) -> Standing {
        Standing::Waiting {
            ahead,
            look_again: self.claim.lease,
        }
    }

    pub(super) fn fence(&self) -> Option<Fence> {
        Some(self.fence.load(Ordering::Acquire))
            .filter(|fence| *fence > 0)
            .map(Fence::new)
    }

    pub(super) fn held(&self, wanted: bool) -> Option<Held> {
        self.fence().map(|fence| Held {
            fence,
            block: FENCE_BLOCK,
            wanted,
        })
    }

    pub(super) fn holds(&self, held: Held) {
        self.fence.store(held.fence.get(), Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.hinted.notify_one();
    }
}
