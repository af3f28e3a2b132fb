//! A host with its port, as URLs and servers write it.

use std::fmt;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host {
    /// A name or an address, the latter without brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Host {
    /// From `host`, `host:port`, `[v6]` or `[v6]:port`. The port is not repeated in an error: in
    /// `redis://app:hunter2` it is a password.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => rest
                .split_once(']')
                .ok_or("a host has a [ without its ]: write [IPV6] or [IPV6]:PORT")?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if name.is_empty() {
            return Err("a host has no name: write HOST or HOST:PORT".to_owned());
        }
        if name.contains(['[', ']']) {
            return Err("a host has a bracket in it: write [IPV6] or [IPV6]:PORT".to_owned());
        }
        let port = match port {
            "" => Some(default_port),
            port => port.strip_prefix(':').and_then(|port| port.parse().ok()),
        };
        let name = name.to_owned();
        match port {
            Some(port) => Ok(Self { name, port }),
            None => Err(format!(
                "what follows the host {name:?} is not a port: write HOST:PORT, [IPV6]:PORT, or \
                 USER:PASSWORD@HOST"
            )),
        }
    }

    /// Whether a connection stays on this machine: the name `localhost`, or a loopback address. A name that only begins
    /// like one may lead anywhere.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn is_this_machine(&self) -> bool {
        let address = self.name.parse::<std::net::IpAddr>();
        address.map_or(self.name == "localhost", |ip| ip.is_loopback())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_and_written() {
        for (text, name, port) in [
            ("h", "h", 7),
            ("h:1", "h", 1),
            ("[::1]", "::1", 7),
            ("[::1]:2", "::1", 2),
            ("10.0.0.1:65535", "10.0.0.1", 65535),
        ] {
            let host = Host::parse(text, 7).unwrap();
            assert_eq!((host.name.as_str(), host.port), (name, port));
            assert_eq!(Host::parse(&host.to_string(), 9), Ok(host));
        }
    }

    #[test]
    fn a_wrong_port_is_not_repeated() {
        for text in [
            "",
            ":1",
            "[::1",
            "[]",
            "[::1]hunter2",
            "app:hunter2",
            "h:1:hunter2",
            "h:65536",
        ] {
            let error = Host::parse(text, 7).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    /// Whatever the text is, it is refused, or is the same host once it is written down.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_person_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "host",
            words: &[
                b"[",
                b"]",
                b":",
                b"::1",
                b"127.0.0.1",
                b"65535",
                b"localhost",
            ],
        };
        fuzz.run(&[], |input| {
            let text = String::from_utf8_lossy(input);
            let host = Host::parse(&text, 7);
            if let Ok(host) = &host {
                assert_eq!(Host::parse(&host.to_string(), 9).as_ref(), Ok(host));
            }
            let outcome = |host: Host| {
                (
                    host.name.contains(':'),
                    host.port == 7,
                    host.name.len().min(3),
                )
            };
            host.map(outcome)
                .map_err(|error| error.get(..12).map(str::to_owned))
        });
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn only_this_machine_is_this_machine() {
        let here = |text| Host::parse(text, 7).unwrap().is_this_machine();
        for text in ["localhost", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:1"] {
            assert!(here(text), "{text}");
        }
        for text in [
            "localhost.example.com",
            "localhost-db",
            "127.example.com",
            "127.0.0.1.example.com:1",
            "127.1",
            "[::2]",
            "[::ffff:10.0.0.1]",
            "10.0.0.1",
        ] {
            assert!(!here(text), "{text}");
        }
    }
}
