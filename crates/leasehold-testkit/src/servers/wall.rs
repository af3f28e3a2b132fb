//! A wall clock of a server's own, preloaded into it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The clock of one server, in its directory.
#[derive(Debug)]
pub struct Wall {
    library: PathBuf,
    offset: PathBuf,
}

impl Wall {
    /// Compiles the library that is preloaded.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub fn new(dir: &Path) -> Self {
        let (source, library, offset) =
            (dir.join("wall.c"), dir.join("wall.so"), dir.join("offset"));
        std::fs::write(&source, include_str!("wall.c")).expect("writable");
        let mut cc = Command::new("cc");
        let _ = cc
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source);
        let done = cc
            .output()
            .expect("a C compiler is not installed: install gcc");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let wall = Self { library, offset };
        wall.set(0);
        wall.stop_at(0, 0);
        wall
    }

    /// Sets the clock so many seconds ahead of, or behind, ours.
    ///
    /// # Panics
    /// If the file is gone.
    pub fn set(&self, seconds: i64) {
        self.write(0, seconds);
    }

    /// Lets the clock stand still at so many microseconds, but for a step with every look at it; 0 lets it go again.
    ///
    /// # Panics
    /// If the file is gone.
    pub fn stop_at(&self, micros: i64, step: i64) {
        self.write(16, step);
        self.write(8, micros);
    }

    fn write(&self, at: u64, number: i64) {
        use std::os::unix::fs::FileExt;
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.offset);
        let written = file.and_then(|file| file.write_all_at(&number.to_ne_bytes(), at));
        written.expect("writable");
    }

    /// The environment of the server, as arguments of `env`.
    pub fn environment(&self) -> Vec<String> {
        vec![
            format!("LD_PRELOAD={}", self.library.display()),
            format!("WALL_OFFSET={}", self.offset.display()),
        ]
    }
}
