//! The directory: where it is, whether it can be trusted, and what is in it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::error::Trouble;
use super::floor::Floor;
use super::record::BootId;
use crate::claim::SessionId;
use crate::error::ErrorKind;
use crate::name::Name;

/// A directory of locks, on a local file system, that only this user can change.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) root: PathBuf,
    pub(super) lines: PathBuf,
    pub(super) sessions: PathBuf,
    pub(super) boot: BootId,
    pub(super) floor: Arc<Floor>,
}

impl Dir {
    /// Makes the directory if it is not there, and checks it.
    pub(super) fn open(path: &Path) -> Result<Self, Trouble> {
        // Without a slash at the end: a symbolic link would be followed.
        let path: PathBuf = path.components().collect();
        refuse_planted_link(&path)?;
        make(&path)?;
        let root = fs::canonicalize(&path).map_err(|e| io("find", &path, &e))?;
        let dir = Self {
            lines: root.join("lines"),
            sessions: root.join("sessions"),
            floor: Arc::new(Floor(root.join("floor"))),
            root,
            boot: boot_id()?,
        };
        dir.prepare()?;
        Ok(dir)
    }

    /// Makes what is missing and checks the rest; also after somebody removed it all.
    pub(super) fn prepare(&self) -> Result<(), Trouble> {
        make(&self.root)?;
        check_owner(&self.root)?;
        check_file_system(&self.root)?;
        make(&self.lines)?;
        make(&self.sessions)
    }

    pub(super) fn line(&self, name: &Name) -> PathBuf {
        self.lines.join(super::name::file_name(name))
    }

    pub(super) fn session(&self, id: SessionId) -> PathBuf {
        self.sessions.join(format!("{:032x}", id.as_u128()))
    }

    pub(super) fn socket(&self, id: SessionId) -> PathBuf {
        self.sessions.join(format!("{:032x}.sock", id.as_u128()))
    }
}

/// The directory of this user. It depends on nothing but the user, so that a cron job and a shell meet.
pub(super) fn default_path() -> PathBuf {
    let user = rustix::process::geteuid();
    let run = Path::new("/run/lock");
    let writable = rustix::fs::access(run, rustix::fs::Access::WRITE_OK).is_ok();
    let parent = if run.is_dir() && writable {
        run
    } else {
        Path::new("/tmp")
    };
    parent.join(format!("leasehold-{}", user.as_raw()))
}

fn make(path: &Path) -> Result<(), Trouble> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| io("make the directory", path, &error))
}

/// In a place where everybody may write, a link leads wherever a stranger wants.
fn refuse_planted_link(path: &Path) -> Result<(), Trouble> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs::metadata(parent.unwrap_or(Path::new(".")));
    if is_link && parent.is_ok_and(|parent| parent.mode() & 0o002 != 0) {
        return Err(denied(
            path,
            "is a symbolic link in a place where everybody may write: remove it",
        ));
    }
    Ok(())
}

fn check_owner(path: &Path) -> Result<(), Trouble> {
    let found = fs::metadata(path).map_err(|error| io("look at", path, &error))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let whose = format!(
            "belongs to another user (uid {}): not allowed. Use a directory of your own, as in file:DIR",
            found.uid()
        );
        return Err(denied(path, &whose));
    }
    if found.mode() & 0o022 != 0 {
        return Err(denied(
            path,
            "can be written to by other users: chmod go-w it first",
        ));
    }
    Ok(())
}

/// File systems whose locks or whose caches are not those of one kernel.
const NETWORKED: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "a VirtualBox share"),
    (0x6573_5546, "FUSE"),
];

fn check_file_system(path: &Path) -> Result<(), Trouble> {
    let found = rustix::fs::statfs(path).map_err(|errno| Trouble::io("look at", path, errno))?;
    // The type is a signed word on some machines; the numbers have 32 bits.
    match networked(found.f_type as u64 & 0xFFFF_FFFF) {
        None => Ok(()),
        Some(kind) => Err(Trouble::new(
            ErrorKind::Unsupported,
            format!(
                "{} is on {kind}, which other machines may share: file locks there exclude nobody else for sure. Use \
                 a local directory for one machine; for several, use a server (redis://, postgres://, mysql://, \
                 zookeeper://, etcd://, consul://)",
                path.display()
            ),
        )),
    }
}

fn networked(kind: u64) -> Option<&'static str> {
    let found = NETWORKED.iter().find(|(magic, _)| *magic == kind);
    found.map(|(_, name)| *name)
}

fn boot_id() -> Result<BootId, Trouble> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|error| io("read", path, &error))?;
    let number = u128::from_str_radix(&text.trim().replace('-', ""), 16);
    number.map(u128::to_be_bytes).map_err(|_| {
        Trouble::new(
            ErrorKind::Unavailable,
            format!("{} holds no boot id", path.display()),
        )
    })
}

fn denied(path: &Path, why: &str) -> Trouble {
    Trouble::new(ErrorKind::Denied, format!("{} {why}", path.display()))
}

pub(super) fn io(what: &str, path: &Path, error: &std::io::Error) -> Trouble {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    Trouble::io(what, path, errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Step;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn refused(path: &Path) -> String {
        let error = Dir::open(path).unwrap_err().at(Step::Connect);
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        error.to_string()
    }

    #[test]
    fn makes_a_directory_for_this_user_alone() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(&temp.path().join("a/b/")).unwrap();
        for path in [&dir.root, &dir.lines, &dir.sessions] {
            assert_eq!(
                fs::metadata(path).unwrap().mode() & 0o777,
                0o700,
                "{path:?}"
            );
        }
        assert_eq!(dir.root, fs::canonicalize(temp.path()).unwrap().join("a/b"));
    }

    #[test]
    fn refuses_a_directory_that_others_can_write_to() {
        let temp = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o702, 0o777] {
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused(temp.path()).contains("chmod go-w"));
        }
    }

    #[test]
    fn refuses_a_link_that_anybody_could_have_planted() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        let _ = Dir::open(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(
            Dir::open(&link).unwrap().root,
            fs::canonicalize(&real).unwrap()
        );
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        assert!(
            refused(&link.join("")).contains("symbolic link"),
            "a slash at the end"
        );
    }

    #[test]
    fn refuses_the_directory_of_another_user() {
        // `/` belongs to root; for root itself something of another user has to be made.
        let temp = tempfile::tempdir().unwrap();
        let path = match rustix::process::geteuid().is_root() {
            false => Path::new("/"),
            true => {
                std::os::unix::fs::chown(temp.path(), Some(12_345), None).unwrap();
                temp.path()
            }
        };
        assert!(refused(path).contains("another user"));
    }

    #[test]
    fn refuses_network_file_systems_and_names_what_fits() {
        assert_eq!(networked(0x6969), Some("NFS"));
        assert_eq!(networked(0x65735546), Some("FUSE"));
        assert_eq!(networked(0xEF53), None, "ext4");
        assert_eq!(networked(0x0102_1994), None, "tmpfs");
    }

    #[test]
    fn the_default_depends_on_the_user_alone() {
        let path = default_path();
        let user = rustix::process::geteuid().as_raw();
        assert!(path.ends_with(format!("leasehold-{user}")), "{path:?}");
    }
}
