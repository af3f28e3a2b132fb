//! Certificates for servers that speak TLS.

use std::path::Path;
use std::process::Command;

/// A certificate authority (`ca.crt`) and its certificate for the loopback address (`server.crt`, `server.key`).
///
/// # Panics
/// If `openssl` is not installed.
pub fn certificates(dir: &Path) {
    certificates_for(dir, "DNS:localhost,IP:127.0.0.1");
}

/// As [`certificates`], for a server that calls itself so.
///
/// # Panics
/// If `openssl` is not installed.
pub fn certificates_for(dir: &Path, names: &str) {
    let openssl = |args: &str| {
        let done = Command::new("openssl")
            .args(args.split_whitespace())
            .current_dir(dir)
            .output();
        let done = done.expect("openssl runs");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    let name = dir.join("names");
    std::fs::write(&name, format!("subjectAltName={names}\n")).expect("writable");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.crt -days 30 -subj /CN=test-authority"
    ));
    openssl(&format!(
        "req {key} -keyout server.key -out server.csr -subj /CN=localhost"
    ));
    openssl(
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 30 -extfile names",
    );
}
