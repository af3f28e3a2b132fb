//! `leasehold evict`: takes a lock away.

use leasehold::Fence;

use crate::cli::{Common, EvictArgs};
use crate::exit::Failure;

/// Says how many lost it. Nobody is a fine answer too: the lock is free of whoever was meant.
pub(crate) async fn evict(args: &EvictArgs, common: &Common) -> Result<u8, Failure> {
    let client = crate::connect(common, None).await?;
    let fence = args.fence.map(Fence::new);
    let lost = client.evict(&args.name, fence, &args.why).await?;
    let _ = client.shutdown(std::time::Duration::from_secs(1)).await;
    let name = &args.name;
    let said = match (lost, args.fence) {
        (0, None) => format!("nobody holds {name}"),
        (0, Some(fence)) => format!("nobody holds {name} with fence {fence}"),
        (1, _) => format!("1 holder of {name} lost it"),
        (many, _) => format!("{many} holders of {name} lost it"),
    };
    crate::print(&format!("{said}\n"))?;
    Ok(0)
}
