//! A server of HTTP/1.1 that says what a test wants, alone or before a real one.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// A server that answers each connection once, and closes it.
#[derive(Debug)]
pub struct Web {
    port: u16,
}

impl Web {
    /// Gives to every request this answer, as it is.
    ///
    /// # Panics
    /// If no port is free.
    pub fn says(answer: &'static str) -> Self {
        Self::start(move |_| Ok(answer.as_bytes().to_vec()))
    }

    /// Passes requests on to a server at this port, and its answers back: with other heads.
    ///
    /// # Panics
    /// If no port is free.
    pub fn before(
        server: u16,
        request: impl Fn(&str) -> String + Send + Sync + 'static,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |asked| {
            let mut stream = TcpStream::connect(("127.0.0.1", server))?;
            let closes = |head: &str| head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
            stream.write_all(&with_head(asked, |head| closes(&request(head))))?;
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said)?;
            Ok(with_head(&said, &answer))
        })
    }

    fn start(answer: impl Fn(&[u8]) -> io::Result<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let answer = Arc::new(answer);
        drop(std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answer = answer.clone();
                drop(std::thread::spawn(move || {
                    let asked = read(&mut stream)?;
                    stream.write_all(&answer(&asked)?)
                }));
            }
        }));
        Self { port }
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn end_of_head(message: &[u8]) -> Option<usize> {
    let at = message.windows(4).position(|four| four == b"\r\n\r\n");
    at.map(|at| at + 4)
}

fn with_head(message: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    let (head, body) = message.split_at(end_of_head(message).unwrap_or(0));
    let head = change(&String::from_utf8_lossy(head));
    [head.as_bytes(), body].concat()
}

/// One request, with its body.
fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut asked, mut some) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = end_of_head(&asked) {
            let head = String::from_utf8_lossy(&asked[..end]).to_lowercase();
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap_or(0));
            if asked.len() >= end + length {
                return Ok(asked);
            }
        }
        match stream.read(&mut some)? {
            0 => return Ok(asked),
            more => asked.extend_from_slice(&some[..more]),
        }
    }
}
