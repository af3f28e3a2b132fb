//! A member that was taken over, and sends more than a client has room for; servers that are no members.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::servers::flood::Flood;
use leasehold_testkit::servers::web::Web;

const MIB: u64 = 1 << 20;

/// A frame of HTTP/2 for the first request.
fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], body].concat()
}

/// Takes a client in, waits for its first request, and begins an answer of 1 GiB.
fn greet(stream: &mut TcpStream) -> io::Result<()> {
    let _ = stream.read(&mut [0; 4096])?;
    stream.write_all(&frame(4, 0, 0, b""))?;
    stream.write_all(&frame(4, 1, 0, b""))?;
    let _ = stream.read(&mut [0; 4096])?;
    let head = [b"\x88\x0f\x10\x10", &b"application/grpc"[..]].concat();
    stream.write_all(&frame(1, 4, 1, &head))?;
    stream.write_all(&frame(0, 0, 1, b"\0\x40\0\0\0"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_etcd_without_an_end_is_refused() {
    let server = Flood::start(greet, frame(0, 0, 1, &[0; 16 * 1024]));
    let url = format!("etcd://127.0.0.1:{}", server.port());
    let connected = tokio::time::timeout(Duration::from_secs(120), leasehold::connect(&url));
    let connected = connected.await.expect("an answer in time");
    let error = connected.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        server.read_at_least() < 40 * MIB,
        "{} bytes",
        server.read_at_least()
    );
}

/// The port for clients of an etcd with the v2 API alone, or for members, or of another server: all speak HTTP/1.1 or less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_etcd_is_told_from_one() {
    for answer in [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n404 page not found\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        "-ERR unknown command\r\n",
    ] {
        let server = Web::says(answer);
        let url = format!("etcd://127.0.0.1:{}", server.port());
        let error = leasehold::connect(&url).await.expect_err("no etcd");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(
            said.contains("client ports, 2379 unless told otherwise"),
            "{answer}: {said}"
        );
    }
}
