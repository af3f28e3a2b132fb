//! An agent that was taken over: it sends more than a client has room for, or text that is nonsense.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::servers::flood::Flood;

const MIB: u64 = 1 << 20;

fn greet(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    let _ = stream.read(&mut [0; 4096])?;
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 99999999999\r\n\r\n");
    stream.write_all(head.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_consul_without_an_end_is_refused() {
    for (status, again) in [
        ("200 OK", "{\"ID\":0,"),
        ("409 Conflict", "[0,0,0,0,"),
        ("500 Internal Server Error", "words "),
        ("403 Forbidden", "words "),
    ] {
        let greet = move |stream: &mut TcpStream| greet(stream, status);
        let server = Flood::start(greet, again.repeat(8_000).into_bytes());
        let url = format!("consul://127.0.0.1:{}/locks", server.port());
        let connected = tokio::time::timeout(Duration::from_secs(120), leasehold::connect(&url));
        let connected = connected.await.expect("an answer in time");
        let error = connected.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().len() < 3_000, "{error}");
        assert!(
            server.read_at_least() < 80 * MIB,
            "{} bytes",
            server.read_at_least()
        );
    }
}
