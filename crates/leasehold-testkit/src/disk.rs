//! A small disk that can be filled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory, unmounted when it is dropped. It needs the right to mount.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// A disk of so many kilobytes at a path.
    ///
    /// # Panics
    /// If it cannot be mounted.
    pub fn small(path: &Path, kilobytes: u32) -> Self {
        std::fs::create_dir_all(path).expect("a directory");
        let mut mount = Command::new("mount");
        let size = format!("size={kilobytes}k");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path);
        assert!(
            mounted.status().is_ok_and(|status| status.success()),
            "this test mounts a small tmpfs: run it as root, or skip it with LEASEHOLD_SKIP=full-disk"
        );
        Self(path.to_owned())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fills it to the last byte.
    ///
    /// # Panics
    /// If that ends in another error than "no space left".
    pub fn fill(&self) {
        let filler = std::fs::File::create(self.filler()).expect("a file");
        let full = loop {
            if let Err(full) = (&filler).write_all(&[0; 64 << 10]) {
                break full;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    }

    /// Gives back what [`fill`](Self::fill) took.
    ///
    /// # Panics
    /// If it was not filled.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
