//! Which server a connection leads to: always the same, or the master that the sentinels agree on.

use super::super::config::{Config, Shape};
use super::super::error::Trouble;
use super::connection::{Conn, Credentials, Target};
use super::resp::{Call, Reply};
use super::stream::Address;
use crate::engine::Host;

/// The server to connect to now. Asked again for every connection: after a failover it is another one.
pub(super) async fn target(config: &Config, fixed: Option<&Address>) -> Result<Target, Trouble> {
    let address = match (&config.shape, fixed) {
        (_, Some(address)) => address.clone(),
        (Shape::Sentinel { master, login }, None) => find(config, master, login).await?,
        (_, None) => config.hosts[0].clone(),
    };
    Ok(Target::new(config, address))
}

/// Asks the sentinels, one after the other, where the master is.
async fn find(config: &Config, master: &str, login: &Credentials) -> Result<Address, Trouble> {
    let mut answers = Vec::new();
    for sentinel in &config.hosts {
        match ask(config, sentinel, master, login).await {
            Ok(master) => return Ok(master),
            Err(trouble) if trouble.is_final() => return Err(trouble),
            Err(trouble) => answers.push(trouble.to_string()),
        }
    }
    Err(Trouble::Down(format!(
        "no sentinel says where the master {master:?} is ({})",
        answers.join("; ")
    )))
}

async fn ask(
    config: &Config,
    sentinel: &Address,
    master: &str,
    login: &Credentials,
) -> Result<Address, Trouble> {
    let target = Target {
        login: login.now(),
        database: 0,
        // One silent sentinel must not use up the time for all.
        patience: config.patience / (config.hosts.len() as u32 + 1),
        ..Target::new(config, sentinel.clone())
    };
    let question = Call::new("SENTINEL get-master-addr-by-name").arg(master);
    match Conn::ask(&target, question).await? {
        Reply::Nil => {
            Err(Trouble::Down("the sentinel knows no such master".to_owned()).from(sentinel))
        }
        answer => {
            let [name, port]: [Reply; 2] = answer.list()?.try_into().map_err(Trouble::strange)?;
            let (name, port) = (name.text()?, port.number()?);
            Ok(Address::Tcp(Host { name, port }))
        }
    }
}
