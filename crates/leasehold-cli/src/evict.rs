//! `leasehold evict`: takes a lock away.

use leasehold::Fence;
use leasehold::engine::Identity;

use crate::cli::{Common, EvictArgs};
use crate::exit::Failure;
use crate::place::Place;

/// Says how many lost it, or were asked. None is a fine answer too: the lock is free of the holder that was meant.
pub(crate) async fn evict(args: &EvictArgs, common: &Common) -> Result<u8, Failure> {
    let client = crate::connect(&Place::given(common)?, evictor()).await?;
    let (name, fence) = (&args.name, args.fence.map(Fence::new));
    let count = match (&args.why, fence) {
        (Some(why), Some(fence)) => client.evict_fence(name, fence, why).await?,
        (Some(why), None) => client.evict(name, why).await?,
        (None, Some(fence)) => client.ask_fence_to_release(name, fence).await?,
        (None, None) => client.ask_to_release(name).await?,
    };
    let [one, many] = match args.why {
        Some(_) => ["lost it"; 2],
        None => ["was asked to give it up", "were asked to give it up"],
    };
    let _ = client.shutdown(std::time::Duration::from_secs(1)).await;
    let said = match (count, args.fence) {
        (0, None) => format!("no process holds {name}"),
        (0, Some(fence)) => format!("no process holds {name} with fence {fence}"),
        (1, _) => format!("1 holder of {name} {one}"),
        (count, _) => format!("{count} holders of {name} {many}"),
    };
    crate::print(&format!("{said}\n"))?;
    Ok(0)
}

/// The holders are told by which user and process: the process will be gone when they look.
fn evictor() -> Identity {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| format!("uid{}", rustix::process::geteuid().as_raw()));
    let this = Identity::of_this_process();
    Identity::new(format!("{user}@{}", this.host), this.pid, this.command)
}
