//! What a database's client crate is used through: packets of statements out, rows of text back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::Dialect;
use super::quick::{Statement, Value};
use super::rows::number;
use crate::error::{Error, ErrorKind, Result, Step};

/// The rows of one statement. Numbers are decimal, bytes hexadecimal.
pub(super) type Rows = Vec<Vec<Option<String>>>;

/// One connection.
#[async_trait]
pub(super) trait Link: Send {
    /// Runs the statements of a packet in one round trip; answers with the rows of each.
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble>;

    /// Runs one statement in one round trip, once the connection knows it; answers with the row it tells, if any.
    async fn quick(&mut self, statement: &Statement, values: &[Value]) -> Result<Told, Trouble>;
}

/// The row that a statement tells.
pub(super) type Told = Option<Vec<Option<String>>>;

/// Where connections come from.
#[async_trait]
pub(super) trait Connect: std::fmt::Debug + Send + Sync {
    fn dialect(&self) -> Dialect;
    /// The server or the file, as errors name it.
    fn place(&self) -> String;
    async fn connect(&self) -> Result<Box<dyn Link>, Trouble>;
    /// Takes what is told to a channel until the returned value is dropped or the connection breaks. None where the
    /// database has no such thing.
    async fn listen(&self, channel: &str, heard: Heard) -> Result<Option<Listening>, Trouble>;
}

/// Takes what a channel says.
pub(super) type Heard = Arc<dyn Fn(&str) + Send + Sync>;

/// Ends when the connection of a listener breaks.
pub(super) type Listening = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// What went wrong, as far as it matters what to do next.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) what: What,
    /// Without secrets: it is shown.
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Another transaction was in the way, and nothing was done: do it again.
    Again,
    /// The connection is of no more use; the packet may have been done.
    Broken,
    /// The file was removed or replaced: what is in it counts no more.
    Moved,
    /// No connection could be made; nothing was done.
    Unreachable,
    /// The tables are not there.
    Missing,
    /// The URL names a database that is not there.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        expect(
            dead_code,
            reason = "a file has no server that knows databases by name"
        )
    )]
    Config,
    /// The database does not let us.
    Denied,
    /// The tables may be made by a role that is not trusted.
    Planted,
    /// The database cannot be used for this.
    Unsuitable,
    /// It cannot do it now.
    Other,
}

impl Trouble {
    pub(super) fn new(what: What, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { what, message }
    }

    /// What a server said while a connection to it was made.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn from(self, server: &str) -> Self {
        let Self { what, message } = self;
        let message = match what {
            What::Broken => format!("no connection to {server}: {message}"),
            _ => format!("{server} refused the connection: {message}"),
        };
        Self { what, message }
    }

    /// The error to show for it.
    pub(super) fn at(self, step: Step, dialect: Dialect) -> Error {
        let kind = match self.what {
            What::Denied | What::Planted => ErrorKind::Denied,
            What::Config => ErrorKind::Config,
            What::Unsuitable => ErrorKind::Unsupported,
            What::Again => ErrorKind::TimedOut,
            What::Broken | What::Unreachable | What::Missing | What::Moved | What::Other => {
                ErrorKind::Unavailable
            }
        };
        let error = Error::new(kind, step, self.message).on(dialect.word());
        match self.what {
            What::Broken => error.perhaps(),
            _ => error,
        }
    }
}

/// The innermost cause: the outer ones repeat it, or say less.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A connection that is made when it is needed and made anew after it broke.
pub(super) struct Wire {
    connect: Arc<dyn Connect>,
    link: Option<Box<dyn Link>>,
    patience: Duration,
}

impl Wire {
    pub(super) fn new(connect: Arc<dyn Connect>, patience: Duration) -> Self {
        Self {
            connect,
            link: None,
            patience,
        }
    }

    /// Whether it has a connection that has not broken yet.
    pub(super) fn is_up(&self) -> bool {
        self.link.is_some()
    }

    /// Runs one packet. Afterwards no transaction of a packet that failed is left open.
    pub(super) async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        let answer = self.attempt(packet).await;
        self.settle(answer).await
    }

    /// Runs one quick statement and answers with the number it tells: nothing, or 0, is told as nothing.
    pub(super) async fn quick(
        &mut self,
        statement: &Statement,
        values: &[Value],
    ) -> Result<Option<u64>, Trouble> {
        let told = self.row(statement, values).await?;
        let told = told.map(|row| number(&row, 0)).transpose()?;
        Ok(told.filter(|number| *number != 0))
    }

    /// Runs one statement, and answers with the row it tells.
    pub(super) async fn row(
        &mut self,
        statement: &Statement,
        values: &[Value],
    ) -> Result<Told, Trouble> {
        let mut link = self.take().await?;
        let answer = within(&*self.connect, self.patience, link.quick(statement, values)).await;
        self.put_back(link, &answer);
        self.settle(answer).await
    }

    async fn settle<T>(&mut self, answer: Result<T, Trouble>) -> Result<T, Trouble> {
        if let Err(trouble) = &answer {
            if matches!(trouble.what, What::Broken | What::Unreachable | What::Moved) {
                self.link = None;
            } else if self.attempt("ROLLBACK").await.is_err() && trouble.what != What::Other {
                // Where there was no transaction some say so; a connection in doubt is not kept.
                self.link = None;
            }
        }
        answer
    }

    async fn attempt(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        let mut link = self.take().await?;
        let answer = within(&*self.connect, self.patience, link.run(packet)).await;
        self.put_back(link, &answer);
        answer
    }

    /// Taken out while it works: a future that was dropped in the middle leaves no half-read connection behind.
    async fn take(&mut self) -> Result<Box<dyn Link>, Trouble> {
        match self.link.take() {
            Some(link) => Ok(link),
            None => {
                let made = within(&*self.connect, self.patience, self.connect.connect()).await;
                made.map_err(|trouble| match trouble.what {
                    What::Broken => Trouble::new(What::Unreachable, trouble.message),
                    _ => trouble,
                })
            }
        }
    }

    fn put_back<T>(&mut self, link: Box<dyn Link>, answer: &Result<T, Trouble>) {
        if !matches!(answer, Err(trouble) if trouble.what == What::Broken) {
            self.link = Some(link);
        }
    }
}

async fn within<T>(
    server: &dyn Connect,
    patience: Duration,
    call: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let answer = tokio::time::timeout(patience, call).await;
    answer.unwrap_or_else(|_| {
        let what = format!("{} gave no answer in {patience:?}", server.place());
        Err(Trouble::new(What::Broken, what))
    })
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}
