//! A line's file for somebody who only looks.

use std::fs::File;
use std::path::Path;

use rustix::fs::FlockOperation;

use super::error::{Fault, Trouble};
use super::record::{self, BootId};
use super::store::{read, try_flock};
use crate::line::Line;
use crate::name::Name;

/// The name and the line in a file. None if it is empty or was removed meanwhile.
pub(super) fn look(path: &Path, boot: &BootId) -> Result<Option<(Name, Line)>, Trouble> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(super::dir::io("open", path, &error)),
    };
    // Should it stay busy, the read goes without: records have checksums, and this only looks.
    let _ = try_flock(&file, FlockOperation::NonBlockingLockShared);
    let mut bytes = Vec::new();
    read(&file, path, &mut bytes)?;
    let record = record::current(&bytes).map_err(|fault| fault.of(path.to_owned()))?;
    let Some(record) = record else {
        return Ok(None);
    };
    let name = Name::new(record.name).map_err(|_| Fault::Torn.of(path.to_owned()))?;
    Ok(Some((name, record.line(boot))))
}
