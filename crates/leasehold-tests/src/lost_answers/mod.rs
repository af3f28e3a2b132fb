//! Every operation, cut at each of its messages, in both directions: the caller's answer is true, no other claim is
//! touched, and nothing stays.

mod operation;
mod trial;

use std::sync::Arc;

use leasehold::engine::Query;
use leasehold::{Client, Name};
use leasehold_testkit::proxy::Way;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use self::operation::Operation;
use self::trial::Trial;
use crate::Bed;

/// More messages than an operation has, one way.
const MESSAGES: u64 = 16;

/// How many clients are there at a time. Each makes several connections when it begins, and all that begin together do so
/// within the leases of the others: a machine of two processors is busy with thirty of them for longer than a lease.
const AT_ONCE: usize = 10;

/// One engine at a time: the clients of two would keep each other from their renewals.
static ONE: Mutex<()> = Mutex::const_new(());

/// Every operation of the engine, cut at each message: the first, the second, until there are no more.
///
/// # Panics
/// With the list of what was not so.
pub async fn are_told(mut bed: Bed) {
    let _one = ONE.lock().await;
    // A lease ends here only if what is looked at is wrong: it is longer than a busy machine keeps a process waiting.
    bed.lease *= 2;
    let bed: &'static Bed = Box::leak(Box::new(bed));
    let direct = bed.client().await;
    let readers = direct.guarantees().readers;
    let operations = Operation::ALL.into_iter();
    let operations = operations.filter(|operation| readers || *operation != Operation::Downgrade);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut trials = JoinSet::new();
    for operation in operations {
        for way in [Way::ToServer, Way::ToClient] {
            for used in [true, false] {
                let (direct, room) = (direct.clone(), room.clone());
                let _ = trials.spawn(async move {
                    let _room = room.acquire_owned().await.expect("never closed");
                    each_message(bed, direct, operation, way, used).await
                });
            }
        }
    }
    let mut wrong = Vec::new();
    for (what, cut, of_these) in trials.join_all().await {
        println!("{what}: {cut} cuts, {} went wrong", of_these.len());
        assert!(cut > 0, "{what}: never cut");
        wrong.extend(of_these);
    }
    wrong.extend((bed.endless)());
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{count} went wrong:\n  {}",
        wrong.join("\n  ")
    );
}

async fn each_message(
    bed: &'static Bed,
    direct: Client,
    operation: Operation,
    way: Way,
    used: bool,
) -> (String, u64, Vec<String>) {
    let mut wrong = Vec::new();
    // Heartbeats come again and again: two of them are enough.
    let messages = if operation == Operation::Heartbeat {
        2
    } else {
        MESSAGES
    };
    for after in 0..messages {
        let trial = Trial::new(bed, direct.clone(), operation, way, (after, used));
        match trial.run().await {
            Ok(true) => {}
            Ok(false) => return (format!("{operation:?} {way:?}"), after, wrong),
            Err(what) => wrong.push(what),
        }
    }
    (format!("{operation:?} {way:?}"), messages, wrong)
}

/// The fences of the holders of a name, and the number of waiters, as seen without a proxy.
async fn seen(direct: &Client, name: &str) -> (Vec<u64>, usize) {
    let query = Query::name(Name::new(name).expect("a name"));
    let lines = direct.inspect(&query).await.expect("inspected");
    let Some(line) = lines.first() else {
        return (Vec::new(), 0);
    };
    let fences = line.holders.iter().filter_map(|holder| holder.fence);
    (
        fences.map(leasehold::Fence::get).collect(),
        line.waiters.len(),
    )
}
