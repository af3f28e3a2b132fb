//! One connection to a server: how it is opened, its first requests, and its channels.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::task::JoinSet;

use super::super::config::Config;
use super::super::error::Trouble;
use super::super::fit;
use super::mux::{self, Driver, Mux};
use super::resp::{Call, Reply};
use super::stream::{self, Address, Endpoint};
use crate::engine::Identity;
use crate::engines::tls::Tls;

/// User and password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Login {
    pub(in super::super) user: Option<String>,
    pub(in super::super) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        write!(f, "Login({:?}, {password:?})", self.user)
    }
}

/// Where a login comes from.
#[derive(Clone)]
pub(in super::super) enum Credentials {
    Fixed(Login),
    /// Asked before each connection: passwords change.
    Changing(Arc<dyn Fn() -> (String, String) + Send + Sync>),
}

impl Credentials {
    pub(super) fn now(&self) -> Login {
        match self {
            Self::Fixed(login) => login.clone(),
            Self::Changing(ask) => {
                let (user, password) = ask();
                Login {
                    user: Some(user),
                    password: Some(password),
                }
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(login) => login.fmt(f),
            Self::Changing(_) => f.write_str("Login(changing)"),
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) tls: Option<Tls>,
    pub(super) login: Login,
    pub(super) database: i64,
    /// How long each step may take.
    pub(super) patience: Duration,
}

impl Target {
    /// A server of this deployment, with the login of now.
    pub(super) fn new(config: &Config, address: Address) -> Self {
        Self {
            address,
            tls: config.tls.clone(),
            login: config.login.now(),
            database: config.database,
            patience: config.patience,
        }
    }
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Channel {
    Plain(String),
    /// On the server that has the channel's slot.
    Sharded(String),
}

/// Takes what the server says unasked: the channel and the message.
pub(super) type Hear = Arc<dyn Fn(&[u8], &[u8]) + Send + Sync>;

/// A connection. Its [`Driver`] must be polled for anything to happen.
#[derive(Clone)]
pub(super) struct Conn {
    mux: Mux,
    /// Named in errors.
    address: Arc<Address>,
    /// The server's id of the connection (`CLIENT ID`).
    id: Option<i64>,
}

/// The first answers of a server.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    /// How every call of the script begins.
    pub(super) script: Call,
    /// `INFO server`: which run of the server this is, and when it began.
    pub(super) info: Arc<str>,
}

/// A connection as its server knows it: numbers count from the server's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    run: String,
    id: i64,
}

/// The next address of a host is tried so long after the last.
const STAGGER: Duration = Duration::from_millis(250);

impl Conn {
    /// Connects and logs in.
    pub(super) async fn open(target: &Target, hear: Hear) -> Result<(Self, Driver), Trouble> {
        let found = tokio::time::timeout(target.patience, target.address.endpoints()).await;
        let found = found.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let opened = match found {
            Ok(endpoints) => Self::race(target, endpoints, hear).await,
            Err(error) => Err(Trouble::Down(error.to_string())),
        };
        opened.map_err(|trouble| trouble.from(&target.address))
    }

    /// The first place that answers. They are tried a moment after each other and each in its own time, so that one that
    /// is silent does not use up the time of the next.
    async fn race(
        target: &Target,
        endpoints: Vec<Endpoint>,
        hear: Hear,
    ) -> Result<(Self, Driver), Trouble> {
        let (mut left, mut attempts) = (endpoints.into_iter(), JoinSet::new());
        let mut last = Trouble::Down("the name of the host has no address".to_owned());
        loop {
            if let Some(endpoint) = left.next() {
                let (target, hear) = (target.clone(), hear.clone());
                let _ = attempts.spawn(async move {
                    let login = Self::log_in(&target, endpoint, hear);
                    let done = tokio::time::timeout(target.patience, login).await;
                    done.unwrap_or_else(|_| Err(silent(&target.address)))
                });
            }
            let more = left.len() > 0;
            tokio::select! {
                done = attempts.join_next() => match done {
                    None => return Err(last),
                    Some(Ok(Ok(opened))) => return Ok(opened),
                    Some(Ok(Err(trouble))) if trouble.is_final() => return Err(trouble),
                    Some(Ok(Err(trouble))) => last = trouble,
                    Some(Err(stopped)) => last = Trouble::Down(stopped.to_string()),
                },
                () = tokio::time::sleep(STAGGER), if more => {}
            }
        }
    }

    async fn log_in(
        target: &Target,
        endpoint: Endpoint,
        hear: Hear,
    ) -> Result<(Self, Driver), Trouble> {
        let stream = stream::open(endpoint, &target.address, target.tls.as_ref()).await?;
        let (mux, mut driver) = mux::over(stream, hear);
        let mut conn = Self {
            mux,
            address: Arc::new(target.address.clone()),
            id: None,
        };
        for reply in conn.first(&mut driver, &hello(target)).await? {
            let said = reply.ok().map_err(Trouble::at_login)?;
            conn.id = conn.id.or(id_in(&said));
        }
        Ok((conn, driver))
    }

    /// Loads the script and sees whether the server is fit for locks.
    pub(super) async fn greet(
        &self,
        driver: &mut Driver,
        script: &str,
        config: &Config,
    ) -> Result<Greeting, Trouble> {
        let looks = ["INFO server", "INFO memory", "ROLE"].map(Call::new);
        let calls: Vec<_> = std::iter::once(load(script)).chain(looks).collect();
        let replies = self.first(driver, &calls).await?;
        let [digest, server, memory, role]: [Reply; 4] =
            replies.try_into().map_err(Trouble::strange)?;
        let script = Call::new("EVALSHA").arg(digest.text()?);
        fit::check(&[&server, &memory], &role, config.evicting)?;
        Ok(Greeting {
            script,
            info: server.text().unwrap_or_default().into(),
        })
    }

    /// How the server knows this connection.
    pub(super) fn known(&self, greeting: &Greeting) -> Option<Known> {
        let run = greeting
            .info
            .lines()
            .find(|line| line.starts_with("run_id:"))?;
        Some(Known {
            run: run.to_owned(),
            id: self.id?,
        })
    }

    /// Ends an earlier connection for the server too, so that nothing that lies in it unread is done after what this
    /// one asks: a claim would come after its release. A refusal for want of the right leaves it to chance.
    pub(super) async fn succeed(
        &self,
        driver: &mut Driver,
        greeting: &Greeting,
        earlier: &Known,
    ) -> Result<(), Trouble> {
        // Another run of the server calls another connection so.
        let same = self
            .known(greeting)
            .is_some_and(|now| now.run == earlier.run);
        if same {
            let kill = Call::new("CLIENT KILL ID").arg(earlier.id.to_string());
            let _ = self.first(driver, &[kill]).await?;
        }
        Ok(())
    }

    /// Listens to these channels from now on.
    pub(super) async fn subscribe<'a>(
        &self,
        driver: &mut Driver,
        channels: impl Iterator<Item = &'a Channel>,
    ) -> Result<(), Trouble> {
        let calls: Vec<_> = channels.map(Channel::subscribe).collect();
        let replies = self.first(driver, &calls).await?;
        // Slots move: a refused channel is subscribed to on its new server, after the next look.
        let mut refused = replies.into_iter().filter_map(|reply| reply.ok().err());
        match refused.find(|trouble| !trouble.is_passing()) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// Sends calls on a connection that no other task drives.
    async fn first(&self, driver: &mut Driver, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let answered = tokio::select! {
            replies = self.send(calls) => replies,
            why = driver => Err(Trouble::Down(why)),
        };
        // These calls change nothing: whatever went wrong, nothing happened.
        answered.map_err(|trouble| match trouble {
            Trouble::Cut(why) => Trouble::Down(why),
            other => other,
        })
    }

    /// Sends calls in one go and answers for each.
    pub(super) async fn send(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let sent = self.mux.send(calls).await;
        sent.map_err(|trouble| trouble.from(&self.address))
    }

    /// Whether its stream has ended.
    pub(super) fn is_over(&self) -> bool {
        self.mux.is_over()
    }

    /// Ends it: the callers that wait for answers are told why.
    pub(super) fn end(&self, why: &str) {
        self.mux.end(why);
    }

    /// Asks one thing on a connection of its own.
    pub(super) async fn ask(target: &Target, call: Call) -> Result<Reply, Trouble> {
        let (conn, mut driver) = Self::open(target, Arc::new(|_, _| {})).await?;
        let calls = [call];
        let asked = tokio::time::timeout(target.patience, conn.first(&mut driver, &calls)).await;
        let mut replies = asked.unwrap_or_else(|_| Err(silent(&target.address)))?;
        let reply = replies.pop().ok_or_else(|| Trouble::strange("nothing"))?;
        reply.ok().map_err(|trouble| trouble.from(&target.address))
    }
}

impl Channel {
    pub(super) fn subscribe(&self) -> Call {
        match self {
            Self::Plain(channel) => Call::new("SUBSCRIBE").arg(channel),
            Self::Sharded(channel) => Call::new("SSUBSCRIBE").arg(channel),
        }
    }
}

pub(super) fn silent(address: &Address) -> Trouble {
    Trouble::Down(format!("{address} does not answer"))
}

/// Loads a script; the answer is the digest it is called by.
pub(super) fn load(script: &str) -> Call {
    Call::new("SCRIPT LOAD").arg(script)
}

/// The first requests of a connection: RESP3, the login, and the name that `CLIENT LIST` shows.
fn hello(target: &Target) -> Vec<Call> {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let Identity { host, pid, .. } = Identity::of_this_process();
        let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        format!(
            "leasehold:{}:{pid}",
            host.chars().map(plain).collect::<String>()
        )
    });
    let Login { user, password } = &target.login;
    let mut hello = Call::new("HELLO 3");
    if let Some(password) = password {
        let user = user.as_deref().unwrap_or("default");
        hello = hello.arg("AUTH").arg(user).arg(password);
    }
    let mut calls = vec![hello.arg("SETNAME").arg(&*NAME)];
    if target.database != 0 {
        calls.push(Call::new("SELECT").arg(target.database.to_string()));
    }
    calls
}

/// The number of the connection, in the answer to `HELLO`.
fn id_in(said: &Reply) -> Option<i64> {
    let Reply::List(words) = said else {
        return None;
    };
    words.chunks_exact(2).find_map(|pair| match pair {
        [key, Reply::Number(id)] if key.is(b"id") => Some(*id),
        _ => None,
    })
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conn")
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::engine::Host;

    /// A place of a host: one that answers each message with this, or is silent.
    #[expect(clippy::disallowed_methods, reason = "a test plays the server")]
    async fn place(answer: Option<&'static [u8]>) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(tokio::spawn(async move {
            let mut buffer = [0; 1024];
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                if let Some(answer) = answer {
                    let _ = stream.read(&mut buffer).await;
                    let _ = stream.write_all(answer).await;
                }
                open.push(stream);
            }
        }));
        Endpoint::Tcp(address)
    }

    fn target() -> Target {
        Target {
            address: Address::Tcp(Host::parse("h", 1).unwrap()),
            tls: None,
            login: Login::default(),
            database: 0,
            patience: Duration::from_secs(2),
        }
    }

    async fn race(answers: &[Option<&'static [u8]>]) -> Result<(), Trouble> {
        let mut endpoints = Vec::new();
        for answer in answers {
            endpoints.push(place(*answer).await);
        }
        let target = target();
        let opened = Conn::race(&target, endpoints, Arc::new(|_, _| {}));
        let opened = tokio::time::timeout(Duration::from_secs(60), opened).await;
        opened.expect("in time").map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_of_a_host_has_its_own_time() {
        let (there, silent) = (Some(&b"+OK\r\n"[..]), None);
        let loading = Some(&b"-LOADING it is\r\n"[..]);
        let denied = Some(&b"-WRONGPASS no\r\n"[..]);
        assert_eq!(race(&[there]).await, Ok(()));
        assert_eq!(race(&[silent, loading, silent, there]).await, Ok(()));
        let refused = race(&[silent, denied, there]).await;
        assert!(matches!(refused, Err(Trouble::Denied(_))), "{refused:?}");
        let down = race(&[silent, silent]).await;
        assert!(matches!(down, Err(Trouble::Down(_))), "{down:?}");
    }

    #[tokio::test]
    async fn a_call_on_a_connection_that_ended_was_not_sent_and_names_the_server() {
        let there = place(Some(b"+OK\r\n")).await;
        let opened = Conn::race(&target(), vec![there], Arc::new(|_, _| {})).await;
        let (conn, driver) = opened.unwrap();
        assert!(!conn.is_over());
        let ping = [Call::new("PING")];
        let mut cut = std::pin::pin!(conn.send(&ping));
        let mut unwoken = Context::from_waker(Waker::noop());
        assert!(cut.as_mut().poll(&mut unwoken).is_pending());
        drop(driver);
        assert!(conn.is_over());
        let named = |trouble: &str| trouble.starts_with("h:1: ");
        assert!(matches!(cut.await, Err(Trouble::Cut(why)) if named(&why)));
        assert!(matches!(conn.send(&ping).await, Err(Trouble::Down(why)) if named(&why)));
    }
}
