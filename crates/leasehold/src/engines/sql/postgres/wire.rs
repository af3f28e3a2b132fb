//! With the server's address in `mod.rs`, the only file that names `tokio-postgres`.

use std::collections::HashSet;
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::dialect::Dialect;
use super::super::quick::{Statement, Value};
use super::super::rows::number;
use super::super::tls::Security;
use super::super::wire::{Heard, Link, Listening, Rows, Told, Trouble, What};

/// How the connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls(MakeRustlsConnect);

impl Tls {
    pub(super) fn new(security: &Security, config: &mut Config) -> Result<Self, String> {
        let _ = config.ssl_mode(SslMode::Require);
        Ok(Self(MakeRustlsConnect::new(security.rustls()?)))
    }
}

/// A connection, and the task that moves its bytes.
pub(super) struct Connection {
    client: Client,
    ended: tokio::task::JoinHandle<()>,
    /// The names of the statements that the server has taken over this connection.
    prepared: HashSet<String>,
}

impl Connection {
    pub(super) async fn open(
        config: &Config,
        tls: Option<&Tls>,
        heard: Option<Heard>,
    ) -> Result<Self, Trouble> {
        let heard = heard.unwrap_or_else(|| Arc::new(|_| {}));
        match tls {
            Some(tls) => Self::with(config, tls.0.clone(), heard).await,
            None => Self::with(config, NoTls, heard).await,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    async fn with<T>(config: &Config, tls: T, heard: Heard) -> Result<Self, Trouble>
    where
        T: MakeTlsConnect<Socket> + Send,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let (client, mut connection) = config.connect(tls).await.map_err(|e| trouble(&e))?;
        let ended = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(told) = message {
                    heard(told.payload());
                }
            }
        });
        let prepared = HashSet::new();
        Ok(Self {
            client,
            ended,
            prepared,
        })
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
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        self.ask(packet).await.map_err(|e| trouble(&e))
    }

    /// The statement is prepared under a name that is made of its text, so that a pooler may send every packet to
    /// another connection of the server: there it is either the same statement or unknown. The packet that prepares it
    /// also executes it.
    async fn quick(&mut self, statement: &Statement, values: &[Value]) -> Result<Told, Trouble> {
        let Statement { name, text, .. } = statement;
        let execute = format!("EXECUTE {name} ({})", literals(values));
        let mut known = self.prepared.contains(name);
        for _ in 0..TRIES {
            let answer = match known {
                true => self.ask(&execute).await,
                false => {
                    let types = types(values);
                    let packet = format!("PREPARE {name} ({types}) AS {text}; {execute}");
                    self.ask(&packet).await
                }
            };
            match answer {
                Err(error) if error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => {
                    known = false;
                }
                Err(error) if error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) => known = true,
                Err(error) => return Err(trouble(&error)),
                Ok(answers) => {
                    let _ = known || self.prepared.insert(name.clone());
                    return single(&answers);
                }
            }
        }
        Err(Trouble::new(What::Again, "a pooler is in the way"))
    }
}

/// How often a pooler may choose a connection that is not as the last one was.
const TRIES: usize = 20;

/// The single number of a packet's last rows.
fn single(answers: &[Rows]) -> Result<Told, Trouble> {
    let row = answers.last().and_then(|rows| rows.first());
    row.map(|row| number(row, 0)).transpose()
}

fn literals(values: &[Value]) -> String {
    let mut literals = String::with_capacity(320);
    for value in values {
        if !literals.is_empty() {
            literals.push_str(", ");
        }
        match value {
            Value::Number(number) => drop(write!(literals, "{number}")),
            Value::Bytes(bytes) => literals.push_str(&Dialect::Postgres.bytes(bytes)),
        }
    }
    literals
}

fn types(values: &[Value]) -> String {
    let types = values.iter().map(|value| match value {
        Value::Number(_) => "bigint",
        Value::Bytes(_) => "bytea",
    });
    types.collect::<Vec<_>>().join(", ")
}

impl Connection {
    async fn ask(&self, packet: &str) -> Result<Vec<Rows>, tokio_postgres::Error> {
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

fn trouble(error: &tokio_postgres::Error) -> Trouble {
    let Some(told) = error.as_db_error() else {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(source) = cause {
            message = format!("{message}: {source}");
            cause = source.source();
        }
        return Trouble::new(What::Broken, message);
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
        class if class.starts_with("28") || class == "3D000" => What::Denied,
        // The server goes down, comes up, or has cut this connection off.
        class if class.starts_with("57P") || class.starts_with("08") || class == "25P03" => {
            What::Broken
        }
        _ => What::Other,
    };
    Trouble::new(what, told.message())
}
