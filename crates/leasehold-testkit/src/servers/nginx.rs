//! nginx: shares requests among the instances of a service.

use std::fmt::Write;
use std::net::TcpStream;

use tempfile::TempDir;

use super::database::{as_user, give};
use super::{Running, directory, free_port, installed};
use crate::poll::until;

/// The user of Debian's package.
const USER: &str = "www-data";

/// One `nginx`, one process, which asks the instances in turn.
#[derive(Debug)]
pub struct Nginx {
    running: Running,
    /// Where it listens on the loopback address.
    pub port: u16,
    home: TempDir,
}

impl Nginx {
    /// Starts it in front of what listens at these ports.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn start(instances: &[u16]) -> Self {
        assert!(
            installed("nginx"),
            "nginx is not installed: run scripts/servers web"
        );
        let (home, port) = (directory(), free_port());
        let config = home.path().join("nginx.conf");
        std::fs::write(&config, text(port, instances)).expect("writable");
        give(home.path(), USER);
        let mut words = as_user(USER);
        words.extend(["nginx", "-e", "stderr", "-p"].map(str::to_owned));
        words.push(home.path().display().to_string());
        words.extend(["-c".to_owned(), config.display().to_string()]);
        let running = Running::start(&words[0], "web", home.path(), &words[1..]);
        let nginx = Self {
            running,
            port,
            home,
        };
        until("nginx answers", || {
            let answer = TcpStream::connect(("127.0.0.1", port));
            answer
                .map(drop)
                .map_err(|error| format!("{error}; it said: {}", nginx.output()))
        });
        nginx
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        self.running.output()
    }

    /// Where its files are.
    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }
}

/// One process without a master: what is killed by its id is all there is.
fn text(port: u16, instances: &[u16]) -> String {
    let mut servers = String::new();
    for instance in instances {
        // An instance that was down is asked again at once when it is back.
        let _ = write!(servers, "server 127.0.0.1:{instance} max_fails=0; ");
    }
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|path| format!("  {path}_temp_path {path};\n"));
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n{}  access_log off;\n  keepalive_requests 100000;\n\
         \x20 upstream instances {{ {servers}keepalive 64; keepalive_requests 100000; }}\n\
         \x20 server {{\n    listen 127.0.0.1:{port};\n    location / {{\n      proxy_pass http://instances;\n\
         \x20     proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n",
        paths.concat()
    )
}
