//! The contract in Redisson's layout. Left out is what the layout cannot say: order between processes, and whether
//! another process waits (so nothing lingers).

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Redisson as Engine, Url};
use leasehold_testkit::servers::redis::Redis;

fn engine(options: &str) -> Engine {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    let server = SERVER.get_or_init(Redis::start);
    let url = Url::parse(&format!("{}?layout=redisson{options}", server.url())).expect("a URL");
    Engine::new(&url).expect("an engine")
}

mod plain {
    use super::*;
    leasehold::conformance_tests!(Subject::new(engine("")));
}

mod other {
    use super::*;
    leasehold::conformance_tests!(Subject::new(engine("&lock=fair&semaphore=plain")));
}

mod fenced {
    use super::*;
    leasehold::conformance_tests!(Subject::new(engine("&lock=fenced")));
}
