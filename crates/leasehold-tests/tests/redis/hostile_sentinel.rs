//! A Sentinel that was taken over names a server of its own as the master.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::ConnectOptions;
use leasehold_testkit::servers::flood::Flood;

const SENTINELS: &str = "hunter3";
const DATA: &str = "hunter2";

/// A server that answers each request in turn, and remembers what it was told.
fn fake(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (Flood, Arc<Mutex<String>>) {
    let heard = Arc::<Mutex<String>>::default();
    let hears = heard.clone();
    let greet = move |stream: &mut TcpStream| {
        let mut bytes = [0; 4096];
        loop {
            let length = stream.read(&mut bytes)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let asked = String::from_utf8_lossy(&bytes[..length]).into_owned();
            hears.lock().expect("no panic").push_str(&asked);
            // A request begins with the number of its words.
            for request in asked.split("\r\n*").filter(|request| !request.is_empty()) {
                stream.write_all(answer(request).as_bytes())?;
            }
        }
    };
    (Flood::start(greet, Vec::new()), heard)
}

/// It knows the password of the Sentinels already, and is told that of the data. With TLS it is told neither, because it has no
/// certificate that the client trusts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_was_taken_over_is_told_the_password_of_the_data_unless_there_is_tls() {
    for tls in [false, true] {
        let (master, told) = fake(|_| "-ERR no\r\n".to_owned());
        let port = master.port().to_string();
        let (sentinel, asked) = fake(move |request| match request {
            hello if hello.contains("HELLO") => {
                "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$2\r\nid\r\n:1\r\n".to_owned()
            }
            asks if asks.contains("get-master-addr-by-name") => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            }
            _ => "+OK\r\n".to_owned(),
        });
        let url = format!(
            "redis+sentinel://app:{DATA}@127.0.0.1:{}/main?sentinel_password={SENTINELS}&timeout=500&tls={}",
            sentinel.port(),
            u8::from(tls)
        );
        let connecting = ConnectOptions::new().connect(&url);
        let refused = tokio::time::timeout(Duration::from_secs(60), connecting).await;
        let error = refused.expect("in time").expect_err("no server");
        assert!(!error.to_string().contains("hunter"), "{error}");
        let (asked, told) = (
            asked.lock().expect("no panic"),
            told.lock().expect("no panic"),
        );
        assert!(!asked.is_empty(), "it was asked");
        assert_eq!(asked.contains(SENTINELS), !tls, "{asked:?}");
        assert_eq!(told.contains(DATA), !tls, "{asked:?} {told:?}");
        assert!(
            !asked.contains(DATA) && !told.contains(SENTINELS),
            "{asked:?} {told:?}"
        );
    }
}
