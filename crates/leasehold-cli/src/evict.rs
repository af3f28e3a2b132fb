//! `leasehold evict`: takes a lock away.

use leasehold::Fence;

use crate::cli::{Common, EvictArgs};
use crate::exit::Failure;

/// Says how many lost it, or were asked. Nobody is a fine answer too: the lock is free of whoever was meant.
pub(crate) async fn evict(args: &EvictArgs, common: &Common) -> Result<u8, Failure> {
    let client = crate::connect(common, None).await?;
    let (name, fence) = (&args.name, args.fence.map(Fence::new));
    let (count, [one, many]) = match &args.why {
        Some(why) => (client.evict(name, fence, why).await?, ["lost it"; 2]),
        None => (
            client.ask_to_release(name, fence).await?,
            ["was asked to give it up", "were asked to give it up"],
        ),
    };
    let _ = client.shutdown(std::time::Duration::from_secs(1)).await;
    let said = match (count, args.fence) {
        (0, None) => format!("nobody holds {name}"),
        (0, Some(fence)) => format!("nobody holds {name} with fence {fence}"),
        (1, _) => format!("1 holder of {name} {one}"),
        (count, _) => format!("{count} holders of {name} {many}"),
    };
    crate::print(&format!("{said}\n"))?;
    Ok(0)
}
