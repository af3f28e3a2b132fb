//! A server that was taken over: it sends more than a client has room for.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Error, ErrorKind};
use leasehold_testkit::servers::flood::Flood;

const MIB: u64 = 1 << 20;

async fn refusal(url: &str) -> Error {
    let connected = tokio::time::timeout(Duration::from_secs(120), leasehold::connect(url)).await;
    connected.expect("an answer in time").expect_err("refused")
}

/// Lets a client of PostgreSQL in, waits for its first query, and begins the answer with this.
fn greet_postgres(stream: &mut TcpStream, first: &[u8]) -> io::Result<()> {
    let _ = stream.read(&mut [0; 4096])?;
    let welcome = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    stream.write_all(welcome)?;
    let _ = stream.read(&mut [0; 4096])?;
    stream.write_all(first)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_message_of_postgres_is_refused_at_its_head() {
    for length in [0x3fff_fff0_u32, 17 << 20, u32::MAX] {
        let head = [&b"D"[..], &length.to_be_bytes()].concat();
        let greet = move |stream: &mut TcpStream| greet_postgres(stream, &head);
        let server = Flood::start(greet, vec![0; 64 * 1024]);
        let url = format!("postgres://app@127.0.0.1:{}/db", server.port());
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(
            server.read_at_least() < 16 * MIB,
            "{} bytes",
            server.read_at_least()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_postgres_without_an_end_are_refused() {
    let columns = b"T\0\0\0\x1a\0\x01c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    let mut row = b"D\0\x01\0\x0a\0\x01\0\x01\0\0".to_vec();
    row.resize(1 + 0x1_000a, b'a');
    let greet = move |stream: &mut TcpStream| greet_postgres(stream, columns);
    let server = Flood::start(greet, row);
    let url = format!("postgres://app@127.0.0.1:{}/db", server.port());
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        server.read_at_least() < 300 * MIB,
        "{} bytes",
        server.read_at_least()
    );
}

/// A packet of MariaDB's protocol.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_le_bytes();
    [&length[..3], &[number], body].concat()
}

/// The heads of an answer with so many columns of text.
fn columns(count: usize) -> Vec<u8> {
    let column = b"\x03def\0\0\0\x01c\0\x0c\x21\0\0\0\0\x01\xfd\0\0\0\0\0";
    let mut heads = packet(1, &[u8::try_from(count).expect("few")]);
    for at in 0..count {
        heads.extend(packet(u8::try_from(at + 2).expect("few"), column));
    }
    heads.extend(packet(
        u8::try_from(count + 2).expect("few"),
        b"\xfe\0\0\x02\0",
    ));
    heads
}

/// Lets a client of MariaDB in, answers what its library asks for, and begins the answer to our first query.
fn greet_mariadb(stream: &mut TcpStream) -> io::Result<()> {
    let mut hello = b"\x0a10.11.0-MariaDB\0\x01\0\0\0abcdefgh\0".to_vec();
    hello.extend(
        b"\x08\xa2\x21\x02\0\x0b\0\x15\0\0\0\0\0\0\0\0\0\0abcdefghijkl\0mysql_native_password\0",
    );
    stream.write_all(&packet(0, &hello))?;
    let _ = stream.read(&mut [0; 4096])?;
    stream.write_all(&packet(2, b"\0\0\0\x02\0\0\0"))?;
    let mut asked = [0; 4096];
    loop {
        let length = stream.read(&mut asked)?;
        let query = String::from_utf8_lossy(&asked[..length]).into_owned();
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if query.contains("@@version") {
            return stream.write_all(&columns(1));
        }
        let count = query.matches("@@").count().max(1);
        let mut answer = columns(count);
        let number = u8::try_from(count + 3).expect("few");
        answer.extend(packet(number, &b"\x0a4294967296".repeat(count)));
        answer.extend(packet(number + 1, b"\xfe\0\0\x02\0"));
        stream.write_all(&answer)?;
    }
}

/// The library reads on after that, and keeps nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_mariadb_without_an_end_are_refused() {
    // 256 rows, so that their numbers go round; the first is 4.
    let text = [&b"\xfd\0\0\x01"[..], &[b'a'; 0x1_0000]].concat();
    let rows = (0..=255_u8).flat_map(|at| packet(at.wrapping_add(4), &text));
    let server = Flood::start(greet_mariadb, rows.collect());
    let url = format!("mysql://app@127.0.0.1:{}/db", server.port());
    let error = refusal(&url).await;
    assert!(error.to_string().contains("256 MiB"), "{error}");
}

/// It says that it takes packets of 4 GiB, and sends one row of that length. What is counted is the most that one
/// connection took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_packet_of_mariadb_is_refused() {
    const PACKETS: u64 = 40;
    let taken = Arc::new(AtomicU64::new(0));
    let count = taken.clone();
    let greet = move |stream: &mut TcpStream| {
        greet_mariadb(stream)?;
        let full = [b'a'; 0x1_0000];
        for at in 0..PACKETS {
            let number = u8::try_from(at + 4).expect("few");
            stream.write_all(&[0xff, 0xff, 0xff, number])?;
            // The first byte of 0xffffff is the row's: a text of eight bytes of length.
            let head: &[u8] = if at == 0 {
                b"\xfe\0\0\0\0\x01\0\0\0"
            } else {
                b""
            };
            stream.write_all(head)?;
            let mut left = 0xff_ffff - head.len();
            while left > 0 {
                let part = left.min(full.len());
                stream.write_all(&full[..part])?;
                left -= part;
            }
            let _ = count.fetch_max((at + 1) * 0xff_ffff, Ordering::SeqCst);
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    };
    let server = Flood::start(greet, Vec::new());
    let url = format!("mysql://app@127.0.0.1:{}/db", server.port());
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken < 64 * MIB, "{taken} bytes");
}
