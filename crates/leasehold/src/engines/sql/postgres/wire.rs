//! With the server's address in `mod.rs`, the only file that names `tokio-postgres`.

use std::collections::HashMap;
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, SimpleQueryMessage};
use tokio_postgres::{Error, Statement as Kept};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::quick::{Statement, Value};
use super::super::rows::hex_bytes;
use super::super::tls::Security;
use super::super::wire::{Heard, Link, Listening, Rows, Told, Trouble, What, cause};
use super::bounded::{Bounded, BoundedTls};
use crate::engine::Host;

/// How the connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls(MakeRustlsConnect);

impl Tls {
    pub(super) fn new(security: &Security, config: &mut Config) -> Result<Self, String> {
        let _ = config.ssl_mode(SslMode::Require);
        Ok(Self(MakeRustlsConnect::new(security.rustls()?)))
    }
}

/// A peer that vanished is noticed by the kernel as well.
fn tuned(stream: TcpStream) -> std::io::Result<TcpStream> {
    const GONE: Duration = Duration::from_secs(15);
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(GONE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(GONE))?;
    Ok(stream)
}

/// A connection, and the task that moves its bytes.
pub(super) struct Connection {
    client: Client,
    ended: tokio::task::JoinHandle<()>,
    /// The statements that the one process which gets every packet has kept, by name; None if a pooler may be between.
    kept: Option<HashMap<String, Kept>>,
}

impl Connection {
    pub(super) async fn open(
        config: &Config,
        host: &Host,
        tls: Option<&Tls>,
        heard: Option<Heard>,
    ) -> Result<Self, Trouble> {
        let heard = heard.unwrap_or_else(|| Arc::new(|_| {}));
        let broken = |error: std::io::Error| Trouble::new(What::Broken, cause(&error));
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await;
        let stream = stream.and_then(tuned).map_err(broken)?;
        match tls {
            None => Self::with(config, Bounded::new(stream), NoTls, heard).await,
            Some(tls) => {
                let mut tls = tls.0.clone();
                let tls = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut tls, &host.name);
                let tls =
                    BoundedTls(tls.map_err(|error| Trouble::new(What::Config, cause(&error)))?);
                Self::with(config, stream, tls, heard).await
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    async fn with<S, T>(config: &Config, stream: S, tls: T, heard: Heard) -> Result<Self, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: TlsConnect<S> + Send,
        T::Stream: Send + 'static,
        T::Future: Send,
    {
        let connected = config.connect_raw(stream, tls).await;
        let (client, mut connection) = connected.map_err(|e| trouble(&e))?;
        let ended = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(told)) => heard(told.payload()),
                    Ok(_) => {}
                    Err(error) => {
                        // Those who wait for answers are told that it is closed, and not why.
                        let why = cause(&error);
                        return tracing::warn!(why, "a connection to PostgreSQL is given up");
                    }
                }
            }
        });
        Ok(Self {
            client,
            ended,
            kept: None,
        })
    }

    /// Takes note of the process that answers. If it is the one that took this connection, every packet goes to it: a
    /// pooler tells its clients a number of its own.
    pub(super) async fn answered_by(&mut self, process: u64) {
        let direct = self.taken_by().await == Some(process);
        self.kept = direct.then(HashMap::new);
    }

    /// Whether every packet goes to the same process of the server.
    pub(super) const fn is_direct(&self) -> bool {
        self.kept.is_some()
    }

    /// The process that took this connection, as a request to cancel would name it.
    async fn taken_by(&self) -> Option<u64> {
        let (request, mut written) = tokio::io::duplex(64);
        let token = self.client.cancel_token();
        token.cancel_query_raw(request, NoTls).await.ok()?;
        let _length_and_code = written.read_u64().await.ok()?;
        written.read_u32().await.ok().map(u64::from)
    }

    /// Listens to a channel until the connection ends.
    pub(super) async fn listen(self, channel: &str) -> Result<Listening, Trouble> {
        let listen = format!("LISTEN {channel}");
        let listening = self.client.batch_execute(&listen).await;
        listening.map_err(|e| trouble(&e))?;
        Ok(Box::pin(async move {
            let mut link = self;
            drop((&mut link.ended).await);
        }))
    }
}

#[async_trait]
impl Link for Connection {
    /// Bytes are bound, never part of the text: a role that watches the server reads the texts.
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        let answers = match packet.contains("'\\x") {
            true => self.ask_bound(packet).await,
            false => self.ask(packet).await,
        };
        answers.map_err(|error| trouble(&error))
    }

    /// A pooler may send each packet to another connection of the server, so nothing is prepared there.
    async fn quick(&mut self, statement: &Statement, values: &[Value]) -> Result<Told, Trouble> {
        let told = match self.kept.is_some() {
            true => self.execute(statement, values).await,
            false => {
                let rows = self.execute_once(&statement.text, values).await;
                rows.map(|rows| rows.into_iter().next())
            }
        };
        told.map_err(|error| trouble(&error))
    }
}

fn types(values: &[Value]) -> Vec<Type> {
    let types = values.iter().map(|value| match value {
        Value::Number(_) => Type::INT8,
        Value::Bytes(_) => Type::BYTEA,
    });
    types.collect()
}

impl Connection {
    /// By a statement that this connection of the server keeps.
    async fn execute(&mut self, statement: &Statement, values: &[Value]) -> Result<Told, Error> {
        let kept = self.kept.get_or_insert_default();
        let known = match kept.get(&statement.name) {
            Some(known) => known.clone(),
            None => {
                let types = types(values);
                let known = self.client.prepare_typed(&statement.text, &types);
                let known = known.await?;
                let _ = kept.insert(statement.name.clone(), known.clone());
                known
            }
        };
        let values: Vec<Box<dyn ToSql + Send + Sync>> = values.iter().map(bound).collect();
        let values: Vec<_> = values.iter().map(|value| &**value as _).collect();
        let row = self.client.query_opt(&known, &values).await?;
        row.as_ref().map(cells).transpose()
    }

    async fn execute_once(&self, text: &str, values: &[Value]) -> Result<Rows, Error> {
        let bound: Vec<Box<dyn ToSql + Send + Sync>> = values.iter().map(bound).collect();
        let values = bound.iter().zip(types(values));
        let values: Vec<_> = values.map(|(value, kind)| (&**value as _, kind)).collect();
        let rows = self.client.query_typed(text, &values).await?;
        rows.iter().map(cells).collect()
    }

    /// Runs the statements of a packet with their bytes bound. All are sent before the first is answered. The error is
    /// that of the first which failed: the later ones only say that the transaction is of no use any more.
    async fn ask_bound(&self, packet: &str) -> Result<Vec<Rows>, Error> {
        let lifted: Vec<_> = packet.split("; ").map(lift).collect();
        let asked = lifted
            .iter()
            .map(|(text, values)| Box::pin(self.execute_once(text, values)));
        let mut asked: Vec<_> = asked.map(|call| (call, None)).collect();
        poll_fn(|cx| {
            let mut waits = false;
            for (call, answer) in asked.iter_mut().filter(|(_, answer)| answer.is_none()) {
                match call.as_mut().poll(cx) {
                    Poll::Ready(rows) => *answer = Some(rows),
                    Poll::Pending => waits = true,
                }
            }
            if waits {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        asked.into_iter().filter_map(|(_, answer)| answer).collect()
    }

    async fn ask(&self, packet: &str) -> Result<Vec<Rows>, Error> {
        let (mut answers, mut rows) = (Vec::new(), Rows::new());
        for message in self.client.simple_query(packet).await? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    let cells = (0..row.len()).map(|at| row.get(at).map(str::to_owned));
                    rows.push(cells.collect());
                }
                SimpleQueryMessage::CommandComplete(_) => answers.push(std::mem::take(&mut rows)),
                _ => {}
            }
        }
        Ok(answers)
    }
}

/// A statement with places for the bytes that were in it, and the bytes.
fn lift(statement: &str) -> (String, Vec<Value>) {
    let mut parts = statement.split("'\\x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut values = Vec::new();
    for part in parts {
        let (digits, rest) = part.split_once("'::bytea").unwrap_or((part, ""));
        values.push(Value::Bytes(hex_bytes(digits).unwrap_or_default()));
        let _ = write!(text, "${}{rest}", values.len());
    }
    (text, values)
}

fn cells(row: &Row) -> Result<Vec<Option<String>>, Error> {
    let cells = row.columns().iter().enumerate();
    let cells = cells.map(|(at, column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.map(|n| n.to_string()),
            Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map(|n| n.to_string()),
            Type::TEXT => row.try_get(at)?,
            _ => None,
        })
    });
    cells.collect()
}

fn bound(value: &Value) -> Box<dyn ToSql + Send + Sync + '_> {
    match value {
        Value::Number(number) => Box::new(number.cast_signed()),
        Value::Bytes(bytes) => Box::new(&**bytes),
    }
}

fn trouble(error: &Error) -> Trouble {
    let Some(told) = error.as_db_error() else {
        return Trouble::new(What::Broken, cause(error));
    };
    let code = told.code();
    let again = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::OBJECT_IN_USE,
    ];
    let what = match code.code() {
        _ if again.contains(code) => What::Again,
        "42P01" | "3F000" => What::Missing,
        "25006" => What::Unsuitable,
        "42501" => What::Denied,
        "3D000" => What::Config,
        class if class.starts_with("28") => What::Denied,
        // The server goes down, comes up, or has cut this connection off.
        class if class.starts_with("57P") || class.starts_with("08") || class == "25P03" => {
            What::Broken
        }
        _ => What::Other,
    };
    Trouble::new(what, told.message())
}
