//! Many locks where one was too hot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Handle, Multi, Mutex, terms};
use crate::turns::{Terms, Turns};

/// Many locks where one was too hot: each key has its stripe, and keys of different stripes do not wait for each other.
///
/// Stripe `i` of `NAME` is the mutex `NAME#i`, with `i` in decimal from 0: the part behind the last `#` gives the stripe back, so
/// no two stripes share a name, and other programs can lock one. All processes must use the same number of stripes (1 to
/// 1024): with another number a key is on another stripe, and the two do not exclude each other.
///
/// The stripe of a key is its FNV-1a hash of 64 bits, modulo the number of stripes: begin with `0xcbf29ce484222325`; for each
/// byte xor the byte, then multiply by `0x100000001b3` modulo 2^64.
///
/// | key | hash | of 16 | of 7 |
/// |---|---|---|---|
/// | (empty) | `cbf29ce484222325` | 5 | 2 |
/// | `a` | `af63dc4c8601ec8c` | 12 | 5 |
/// | `foobar` | `85944171f73967e8` | 8 | 6 |
/// | `user:7` | `f7fda0aa7508271d` | 13 | 4 |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let carts = client.striped("carts", 16);
/// let guard = carts.for_key("user:7").lock().await?;
/// assert_eq!(guard.name().as_str(), "carts#13");
/// assert!(carts.for_key("a").try_lock().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "stripes do nothing until one is asked for its lock"]
pub struct Striped(Stripes);

#[derive(Debug, Clone)]
struct Stripes {
    turns: TurnsOf,
    name: String,
    /// One refused handle if the number of stripes is out of range.
    handles: Arc<[Handle]>,
    terms: Terms,
    /// Where `any` begins to look: equals take turns.
    next: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct TurnsOf(Arc<Turns>);

impl std::fmt::Debug for TurnsOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turns")
    }
}

const MOST: u32 = 1024;
const RANGE: &str = "a lock has 1 to 1024 stripes";

impl Striped {
    pub(crate) fn new(turns: &Arc<Turns>, name: &str, stripes: u32, terms: Terms) -> Self {
        let handles = match stripes {
            1..=MOST => (0..stripes)
                .map(|stripe| Handle::new(turns, &stripe_name(name, stripe), terms.clone()))
                .collect(),
            _ => vec![Handle::refused(turns, RANGE, terms.clone())],
        };
        Self(Stripes {
            turns: TurnsOf(turns.clone()),
            name: name.to_owned(),
            handles: handles.into(),
            terms,
            next: Arc::default(),
        })
    }

    terms!();

    /// The stripe of a key: the same in every process, and in every language.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.striped("x", 16).for_key("foobar").lock().await?;
    /// assert_eq!(guard.name().as_str(), "x#8");
    /// # Ok(()) }
    /// ```
    pub fn for_key(&self, key: impl AsRef<[u8]>) -> Mutex {
        let count = self.0.handles.len() as u64;
        self.stripe((fnv1a(key.as_ref()) % count) as usize)
    }

    /// The stripe that the fewest tasks of this process use or wait for; equals take turns. No round trip: what other
    /// processes do is known only as far as this one waits for them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let pool = client.striped("x", 2);
    /// let (one, two) = (pool.any().lock().await?, pool.any().lock().await?);
    /// assert_ne!(one.name(), two.name());
    /// # Ok(()) }
    /// ```
    pub fn any(&self) -> Mutex {
        let least = self.order().into_iter().next();
        self.stripe(least.unwrap_or(0))
    }

    /// All stripes, for maintenance: no key's lock is held by another task meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let pool = client.striped("x", 4);
    /// let all = pool.all().lock().await?;
    /// assert!(pool.for_key("k").try_lock().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn all(&self) -> Multi {
        let refused = matches!(&self.0.handles[..], [one] if one.is_refused());
        match refused {
            true => Multi::refused(&self.0.handles[0]),
            false => {
                let names = (0..self.count()).map(|stripe| stripe_name(&self.0.name, stripe));
                Multi::new(&self.0.turns.0, names, self.0.terms.clone())
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.0.handles.len() as u32
    }

    pub(super) fn stripe(&self, index: usize) -> Mutex {
        let mut handle = self.0.handles[index].clone();
        handle.terms = self.0.terms.clone();
        Mutex::new(handle)
    }

    /// The stripes, the least contended first.
    pub(super) fn order(&self) -> Vec<usize> {
        let count = self.0.handles.len();
        let first = self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut order: Vec<_> = (0..count)
            .map(|at| (first.wrapping_add(at)) % count)
            .collect();
        order.sort_by_cached_key(|stripe| self.0.handles[*stripe].contention());
        order
    }
}

fn stripe_name(name: &str, stripe: u32) -> String {
    format!("{name}#{stripe}")
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation's table: other languages compute the same.
    #[test]
    fn hashes_are_those_of_the_documentation() {
        for (key, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
            ("user:7", 0xf7fd_a0aa_7508_271d),
        ] {
            assert_eq!(
                fnv1a(key.as_bytes()),
                hash,
                "{key:?}: {:x}",
                fnv1a(key.as_bytes())
            );
        }
    }
}
