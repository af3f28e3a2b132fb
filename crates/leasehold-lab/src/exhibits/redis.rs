//! A Redis server of our own, and as much of its protocol as a hand-rolled lock uses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use leasehold::engine::Clock;
use tempfile::TempDir;

use crate::Outcome;

/// A server on a free port that keeps nothing on disk.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Server {
    pub(super) fn start() -> Outcome<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let home = tempfile::tempdir()?;
        let child = launch(port, &home)?;
        let mut server = Self { child, port, home };
        server.wait()?;
        Ok(server)
    }

    /// `kill -9`, and up again with nothing in its memory.
    pub(super) fn restart(&mut self) -> Outcome<()> {
        self.child.kill()?;
        let _ = self.child.wait()?;
        self.child = launch(self.port, &self.home)?;
        self.wait()
    }

    fn wait(&mut self) -> Outcome<()> {
        let clock = Clock::boot();
        let end = clock.now() + 20_000_000;
        while clock.now() < end {
            if let Ok(mut redis) = self.connect()
                && redis.ask(&["PING"])? == "PONG"
            {
                return Ok(());
            }
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        Err("redis-server did not answer within 20 s".into())
    }

    pub(super) fn connect(&self) -> Outcome<Redis> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        Ok(Redis(BufReader::new(stream)))
    }
}

fn launch(port: u16, home: &TempDir) -> Outcome<Child> {
    let mut command = Command::new("redis-server");
    let _ = command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
    ]);
    let _ = command
        .arg(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
        .spawn()
        .map_err(|_| "redis-server is not installed: run scripts/servers redis".into())
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Redis(BufReader<TcpStream>);

impl Redis {
    /// One command; the answer as text, `nil` for none.
    pub(super) fn ask(&mut self, words: &[&str]) -> Outcome<String> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(bytes.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let _ = self.0.read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", rest)) => Ok(rest.to_owned()),
            Some(("$", "-1")) => Ok("nil".to_owned()),
            Some(("$", length)) => {
                let mut text = vec![0; length.parse::<usize>()? + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                Ok(String::from_utf8(text)?)
            }
            _ => Err(format!("redis said: {line}").into()),
        }
    }
}
