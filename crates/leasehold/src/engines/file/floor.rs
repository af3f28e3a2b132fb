//! The largest fence of all names whose files were removed.
//!
//! A name that comes back starts above it, so its fences grow even if the wall clock was set back meanwhile.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::FlockOperation;

use super::dir::io;
use super::error::Trouble;

/// The file that holds it: the number and, against damage, the same with every bit turned.
#[derive(Debug)]
pub(super) struct Floor(pub(super) PathBuf);

impl Floor {
    /// The floor; 0 while there is none.
    pub(super) fn get(&self) -> Result<u64, Trouble> {
        match File::open(&self.0) {
            Ok(file) => Ok(read(&file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(io("open", &self.0, &error)),
        }
    }

    /// Makes it at least this. False if others are at it: it has to be tried again.
    pub(super) fn raise(&self, to: u64) -> Result<bool, Trouble> {
        let mut how = OpenOptions::new();
        let how = how.read(true).write(true).create(true).truncate(false);
        let file = how.mode(0o600).open(&self.0);
        let file = file.map_err(|error| io("open", &self.0, &error))?;
        if !super::store::try_flock(&file, FlockOperation::NonBlockingLockExclusive) {
            return Ok(false);
        }
        if read(&file) < to {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&to.to_le_bytes());
            bytes[8..].copy_from_slice(&(!to).to_le_bytes());
            file.write_all_at(&bytes, 0)
                .map_err(|error| io("write", &self.0, &error))?;
        }
        Ok(true)
    }
}

/// What is damaged counts as nothing: the wall clock is the floor as well.
fn read(file: &File) -> u64 {
    let mut bytes = [0; 16];
    if file.read_exact_at(&mut bytes, 0).is_err() {
        return 0;
    }
    let number = u128::from_le_bytes(bytes);
    let (floor, check) = (number as u64, (number >> 64) as u64);
    if floor == !check { floor } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rises_and_damage_counts_as_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let floor = Floor(temp.path().join("floor"));
        assert_eq!(floor.get().unwrap(), 0);
        for (to, then) in [(7, 7), (9, 9), (8, 9), (u64::MAX, u64::MAX)] {
            assert!(floor.raise(to).unwrap());
            assert_eq!(floor.get().unwrap(), then);
        }
        for damage in [&b""[..], b"1234567", &[0; 16], &[255; 16]] {
            std::fs::write(&floor.0, damage).unwrap();
            assert_eq!(floor.get().unwrap(), 0);
            assert!(floor.raise(3).unwrap());
            assert_eq!(floor.get().unwrap(), 3);
        }
    }
}
