//! With the server's address in `mod.rs`, the only file that names `tokio-postgres`.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::AsyncReadExt;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, SimpleQueryMessage, Socket};
use tokio_postgres::{Error, Statement as Kept};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::quick::{Statement, Value};
use super::super::tls::Security;
use super::super::wire::{Heard, Link, Listening, Rows, Told, Trouble, What, cause};

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
    /// The statements that the one process which gets every packet has kept, by name; None if a pooler may be between.
    kept: Option<HashMap<String, Kept>>,
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
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        self.ask(packet).await.map_err(|e| trouble(&e))
    }

    /// Values are bound, never part of the text: a role that watches the server reads the texts. A pooler may send each
    /// packet to another connection of the server, so nothing is prepared there.
    async fn quick(&mut self, statement: &Statement, values: &[Value]) -> Result<Told, Trouble> {
        let told = match self.kept.is_some() {
            true => self.execute(statement, values).await,
            false => self.execute_once(statement, values).await,
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
        number(self.client.query_opt(&known, &values).await?)
    }

    async fn execute_once(&self, statement: &Statement, values: &[Value]) -> Result<Told, Error> {
        let bound: Vec<Box<dyn ToSql + Send + Sync>> = values.iter().map(bound).collect();
        let values = bound.iter().zip(types(values));
        let values: Vec<_> = values.map(|(value, kind)| (&**value as _, kind)).collect();
        number(
            self.client
                .query_typed_opt(&statement.text, &values)
                .await?,
        )
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

fn number(row: Option<Row>) -> Result<Told, Error> {
    let told = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
    Ok(told.map(i64::cast_unsigned))
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
