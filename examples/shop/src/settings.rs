//! What an instance is told when it is started.

use std::time::Duration;

/// The words of the command line, each with a value: `--listen 127.0.0.1:8088 --redis URL --mysql URL`. The engine of the locks is
/// that of `LEASEHOLD_URL`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The instance's name in its answers.
    pub name: String,
    /// Where it listens.
    pub listen: String,
    /// The stock in Redis, and the store of segments, categories and packets.
    pub redis: String,
    /// The stock in MariaDB, and the categories.
    pub mysql: String,
    /// How long the work between the read and the write of a sale takes.
    pub think: Duration,
    /// When a lock made by hand ends by itself.
    pub expiry: Duration,
    /// The lease of Leasehold's locks.
    pub lease: Duration,
    /// Whether requests may tell it to stop or to die.
    pub switches: bool,
}

impl Settings {
    /// Reads the command line.
    ///
    /// # Errors
    /// A sentence that names the word and what was expected.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            name: "one".to_owned(),
            listen: "127.0.0.1:8088".to_owned(),
            redis: "redis://127.0.0.1".to_owned(),
            mysql: "mysql://shop@127.0.0.1/shop".to_owned(),
            think: Duration::from_millis(5),
            expiry: Duration::from_secs(10),
            lease: Duration::from_secs(10),
            switches: false,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            settings.set(&word, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, word: &str, value: String) -> Result<(), String> {
        match word {
            "--name" => self.name = value,
            "--listen" => self.listen = value,
            "--redis" => self.redis = value,
            "--mysql" => self.mysql = value,
            "--think" => self.think = millis(word, &value)?,
            "--expiry" => self.expiry = millis(word, &value)?,
            "--lease" => self.lease = millis(word, &value)?,
            "--switches" => self.switches = value == "yes",
            _ => {
                return Err(format!(
                    "{word} is not known: --name, --listen, --redis, --mysql, --think, --expiry, --lease, --switches"
                ));
            }
        }
        Ok(())
    }
}

fn millis(word: &str, value: &str) -> Result<Duration, String> {
    let millis = value
        .parse()
        .map_err(|_| format!("{word} {value}: a number of milliseconds was expected"))?;
    Ok(Duration::from_millis(millis))
}
