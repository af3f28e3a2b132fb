//! The master that the sentinels agree on.

use std::time::Duration;

use super::config::Config;
use super::error::Trouble;
use super::link::Dial;
use super::resp::{Call, Reply};
use super::stream::Address;
use super::wire::{Conn, Login, Target};

/// Asks the sentinels, one after the other, where the master is.
#[derive(Debug)]
pub(super) struct Sentinels {
    config: Config,
    master: String,
    login: Login,
}

impl Sentinels {
    pub(super) fn new(config: &Config, master: String, login: Login) -> Self {
        Self {
            config: config.clone(),
            master,
            login,
        }
    }

    /// One silent sentinel must not use up the time for all.
    fn patience(&self) -> Duration {
        self.config.patience / (self.config.hosts.len() as u32 + 1)
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, Trouble> {
        let target = Target {
            address: sentinel.clone(),
            tls: self.config.tls.clone(),
            login: self.login.clone(),
            database: 0,
        };
        let question = Call::new("SENTINEL get-master-addr-by-name").arg(&self.master);
        let asked = tokio::time::timeout(self.patience(), Conn::ask(&target, question)).await;
        match asked.unwrap_or(Err(Trouble::Silent))? {
            Reply::Nil => Err(Trouble::Down(format!(
                "it knows no master {:?}",
                self.master
            ))),
            answer => {
                let [host, port]: [Reply; 2] =
                    answer.list()?.try_into().map_err(Trouble::strange)?;
                Ok(Address::Tcp(host.text()?, port.number()?))
            }
        }
    }
}

#[async_trait::async_trait]
impl Dial for Sentinels {
    async fn target(&self) -> Result<Target, Trouble> {
        let mut answers = Vec::new();
        for sentinel in &self.config.hosts {
            match self.ask(sentinel).await {
                Ok(master) => return Ok(self.config.target(master)),
                Err(trouble) if trouble.is_final() => return Err(trouble),
                Err(trouble) => answers.push(format!("{sentinel}: {trouble:?}")),
            }
        }
        Err(Trouble::Down(format!(
            "no sentinel says where the master is ({})",
            answers.join("; ")
        )))
    }
}
