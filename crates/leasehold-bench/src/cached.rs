//! A cached value that this process holds.

use std::time::Duration;

use leasehold::Client;

use crate::Settings;
use crate::measure::{Outcome, Slice, Spread};
use crate::memory::{one_thread, two_workers};
use crate::table::{Goal, Row};

/// One task that reads on and on.
pub(crate) fn hits(settings: &Settings) -> Outcome<()> {
    for (case, runtime) in [("1 thread", one_thread()?), ("2 workers", two_workers()?)] {
        let client = runtime.block_on(leasehold::connect("memory:"))?;
        for anew in [false, true] {
            let hits = |_| Ok(runtime.block_on(runtime.spawn(read(client.clone(), anew)))??);
            let hits: Vec<f64> = (0..settings.many()).map(hits).collect::<Outcome<_>>()?;
            let handle = if anew { "anew" } else { "reused" };
            let name = format!("cached hit, {case}, handle {handle}");
            Row::alone(&name, "ns", Spread::of(hits), Goal::AtMost(1_000.0)).print();
        }
    }
    Ok(())
}

async fn read(client: Client, anew: bool) -> leasehold::Result<f64> {
    let handle = || client.cached("category:1").local(Duration::from_secs(600));
    let reused = handle();
    let load = async || Ok::<_, leasehold::Error>(Some("books".to_owned()));
    let mut slice = Slice::start();
    while slice.another() {
        let value = match anew {
            true => handle().get_or_load(load).await?,
            false => reused.get_or_load(load).await?,
        };
        assert!(std::hint::black_box(value).is_some());
    }
    Ok(slice.nanos_each())
}
