//! The kinds, blocking: each call blocks on its async twin.

use std::sync::Arc;
use std::time::Duration;

use super::guard::Held;
use super::{Background, Guard, MultiGuard, WriteGuard};
use crate::error::Result;
use crate::kinds::LockOptions;
use crate::turns::{Owner, TurnBound};

/// One kind: its async twin, and the terms that are set on it.
macro_rules! kind {
    ($(#[$doc:meta])* $name:ident $($reentrant:ident)?) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[must_use = "a lock does nothing until it is asked for"]
        pub struct $name {
            twin: crate::$name,
            background: Arc<Background>,
        }

        impl $name {
            pub(super) fn new(twin: crate::$name, background: &Arc<Background>) -> Self {
                let background = background.clone();
                Self { twin, background }
            }

            fn with(self, set: impl FnOnce(crate::$name) -> crate::$name) -> Self {
                let twin = set(self.twin);
                Self { twin, ..self }
            }

            /// How long the lock lasts after a renewal that got through.
            pub fn lease(self, lease: Duration) -> Self {
                self.with(|twin| twin.lease(lease))
            }

            /// Whether the lock is renewed while it is held.
            pub fn keep_alive(self, keep_alive: bool) -> Self {
                self.with(|twin| twin.keep_alive(keep_alive))
            }

            /// Keeps others out for at least this long after the grant.
            pub fn min_hold(self, min_hold: Duration) -> Self {
                self.with(|twin| twin.min_hold(min_hold))
            }

            /// Keeps the grant for this process a while after the last release.
            pub fn linger(self, linger: Duration) -> Self {
                self.with(|twin| twin.linger(linger))
            }

            /// Every thread goes to the engine by itself.
            pub fn strict(self) -> Self {
                self.with(|twin| twin.strict())
            }

            /// How long a grant may stay in this process while another process waits.
            pub fn bound(self, bound: TurnBound) -> Self {
                self.with(|twin| twin.bound(bound))
            }

            /// All terms at once, in place of those of the client.
            pub fn options(self, options: &LockOptions) -> Self {
                self.with(|twin| twin.options(options))
            }

            $(
                /// Lets the thread that holds the lock take it again.
                pub fn $reentrant(self) -> Self {
                    self.with(|twin| twin.$reentrant())
                }

                /// Lets an owner that holds the lock take it again, on any thread.
                pub fn owner(self, owner: &Owner) -> Self {
                    self.with(|twin| twin.owner(owner))
                }
            )?
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.twin.fmt(f)
            }
        }
    };
}

kind! {
    /// One holder at a time; see [`leasehold::Mutex`](crate::Mutex).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let mutex = client.mutex("x").reentrant();
    /// let (outer, inner) = (mutex.lock()?, mutex.lock()?);
    /// assert_eq!(outer.fence(), inner.fence());
    /// drop((outer, inner));
    /// let fence = mutex.run(|guard| guard.fence())?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    Mutex reentrant
}

kind! {
    /// Many readers or one writer; see [`leasehold::RwLock`](crate::RwLock).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let (one, two) = (client.rwlock("x").read()?, client.rwlock("x").read()?);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    RwLock reentrant
}

kind! {
    /// A few holders at a time; see [`leasehold::Semaphore`](crate::Semaphore).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let two = client.semaphore("gpu", 4).acquire_many(2)?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    Semaphore
}

kind! {
    /// Several names at once, all or none; see [`leasehold::Multi`](crate::Multi).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// client.multi(["a", "b"]).lock()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    Multi
}

/// The calls of a kind, each blocking on its async twin: one that waits, one that tries, one with a time limit.
macro_rules! calls {
    ($kind:ident -> $guard:ident: $wait:ident, $try:ident, $within:ident $(, $arg:ident: $type:ty)?) => {
        impl $kind {
            #[doc = concat!("Waits; see [`leasehold::", stringify!($kind), "::", stringify!($wait), "`](crate::", stringify!($kind), "::", stringify!($wait), ").")]
            ///
            /// # Errors
            /// Those of the async call.
            #[track_caller]
            pub fn $wait(&self $(, $arg: $type)?) -> Result<$guard> {
                let guard = self.background.block_on(self.twin.$wait($($arg)?))?;
                Ok($guard(Held::new(guard, &self.background)))
            }

            #[doc = concat!("Does not wait; see [`leasehold::", stringify!($kind), "::", stringify!($try), "`](crate::", stringify!($kind), "::", stringify!($try), ").")]
            ///
            /// # Errors
            /// Those of the async call.
            #[track_caller]
            pub fn $try(&self $(, $arg: $type)?) -> Result<Option<$guard>> {
                let guard = self.background.block_on(self.twin.$try($($arg)?))?;
                Ok(guard.map(|guard| $guard(Held::new(guard, &self.background))))
            }

            #[doc = concat!("Waits for at most this long; see [`leasehold::", stringify!($kind), "::", stringify!($within), "`](crate::", stringify!($kind), "::", stringify!($within), ").")]
            ///
            /// # Errors
            /// Those of the async call.
            #[track_caller]
            pub fn $within(&self $(, $arg: $type)?, patience: Duration) -> Result<Option<$guard>> {
                let guard = self.background.block_on(self.twin.$within($($arg,)? patience))?;
                Ok(guard.map(|guard| $guard(Held::new(guard, &self.background))))
            }
        }
    };
}

calls!(Mutex -> Guard: lock, try_lock, lock_within);
calls!(RwLock -> Guard: read, try_read, read_within);
calls!(RwLock -> WriteGuard: write, try_write, write_within);
calls!(Semaphore -> Guard: acquire, try_acquire, acquire_within);
calls!(Semaphore -> Guard: acquire_many, try_acquire_many, acquire_many_within, count: u32);
calls!(Multi -> MultiGuard: lock, try_lock, lock_within);

kind! {
    /// Many locks where one was too hot; see [`leasehold::Striped`](crate::Striped).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let stripes = client.striped("x", 16);
    /// stripes.for_key("user:7").lock()?.release()?;
    /// stripes.any().lock()?.release()?;
    /// stripes.all().lock()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    Striped
}

impl Striped {
    /// The stripe of a key; see [`leasehold::Striped::for_key`](crate::Striped::for_key).
    pub fn for_key(&self, key: impl AsRef<[u8]>) -> Mutex {
        Mutex::new(self.twin.for_key(key), &self.background)
    }

    /// The stripe that the fewest threads of this process use or wait for.
    pub fn any(&self) -> Mutex {
        Mutex::new(self.twin.any(), &self.background)
    }

    /// All stripes, for maintenance.
    pub fn all(&self) -> Multi {
        Multi::new(self.twin.all(), &self.background)
    }
}
