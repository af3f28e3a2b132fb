//! The directory: whether it can be trusted, and what is in it.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::cleanup::Floor;
use super::error::{Fault, Trouble};
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
    pub(super) floor: Floor,
}

impl Dir {
    /// Makes the directory if it is not there, and checks it.
    pub(super) fn open(path: &Path) -> Result<Self, Trouble> {
        // Without a slash at the end: a symbolic link would be followed.
        let path: PathBuf = path.components().collect();
        let root = without_links(&path)?;
        let dir = Self {
            lines: root.join("lines"),
            sessions: root.join("sessions"),
            floor: Floor(root.join("floor")),
            root,
            boot: boot_id()?,
        };
        dir.prepare()?;
        Ok(dir)
    }

    /// Makes what is missing and checks the rest; also after another program removed it all.
    pub(super) fn prepare(&self) -> Result<(), Trouble> {
        make(&self.root)?;
        check(&self.root)?;
        make(&self.lines)?;
        make(&self.sessions)
    }

    pub(super) fn line(&self, name: &Name) -> PathBuf {
        self.lines.join(super::names::file_name(name))
    }

    pub(super) fn session(&self, id: SessionId) -> PathBuf {
        self.sessions.join(format!("{:032x}", id.as_u128()))
    }

    pub(super) fn socket(&self, id: SessionId) -> PathBuf {
        self.sessions.join(format!("{:032x}.sock", id.as_u128()))
    }
}

/// Opens a regular file, and nothing else, without waiting: a pipe would keep its opener until another process opens
/// the other end, and a link leads elsewhere.
pub(super) fn open_file(path: &Path, how: OFlags) -> Result<File, Trouble> {
    let how = how | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, how, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        // A link, a socket, a directory.
        Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
            return Err(Fault::NotRegular.of(path.to_owned()));
        }
        Err(errno) => return Err(Trouble::io("open", path, errno)),
    };
    let found = rustix::fs::fstat(&file).map_err(|errno| Trouble::io("look at", path, errno))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(Fault::NotRegular.of(path.to_owned())),
    }
}

/// The path of the directory with no link in it. In a place where other users may write the last part is no link either,
/// or [`check`] refuses it: no user can put one there between two looks and be followed.
fn without_links(path: &Path) -> Result<PathBuf, Trouble> {
    let full = |path: &Path| fs::canonicalize(path).map_err(|error| io("find", path, &error));
    let Some(name) = path.file_name() else {
        return full(path);
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make(parent)?;
    let parent = full(parent)?;
    let found = fs::metadata(&parent).map_err(|error| io("look at", &parent, &error))?;
    let path = parent.join(name);
    if found.mode() & 0o022 == 0 {
        make(&path)?;
        return full(&path);
    }
    if found.mode() & 0o1002 == 0o0002 {
        let why = "is in a place where other users may rename it: chmod +t that place, or use another one";
        return Err(denied(&path, why));
    }
    Ok(path)
}

fn make(path: &Path) -> Result<(), Trouble> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Trouble::new(
            ErrorKind::Config,
            format!(
                "cannot make the directory {}: there can be none at that place. Name another one, as in file:DIR",
                path.display()
            ),
        ),
        _ => io("make the directory", path, &error),
    })
}

/// Refuses a directory that is not this user's alone, or not of this machine alone. The checks read the handle that was
/// opened, and no link was followed to it.
fn check(path: &Path) -> Result<(), Trouble> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, how, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let why =
                "is a symbolic link or a file, in a place where other users may write: remove it";
            return Err(denied(path, why));
        }
        Err(errno) => return Err(Trouble::io("open", path, errno)),
    };
    let looked = rustix::fs::fstat(&dir).and_then(|found| Ok((found, rustix::fs::fstatfs(&dir)?)));
    let (found, system) = looked.map_err(|errno| Trouble::io("look at", path, errno))?;
    if found.st_uid != rustix::process::geteuid().as_raw() {
        let whose = format!(
            "belongs to another user (uid {}): name a directory of this user's own, as in file:DIR",
            found.st_uid
        );
        return Err(denied(path, &whose));
    }
    if found.st_mode & 0o022 != 0 {
        return Err(denied(
            path,
            "can be written to by other users: chmod go-w it first",
        ));
    }
    // The type is a signed word on some machines; the numbers have 32 bits.
    match networked(system.f_type as u64 & 0xFFFF_FFFF) {
        None => Ok(()),
        Some(kind) => Err(Trouble::new(
            ErrorKind::Unsupported,
            format!(
                "{} is on {kind}, which other machines may share: file locks there do not exclude those for sure. Use \
                 a local directory for one machine; for several, use a server (redis://, postgres://, mysql://, \
                 zookeeper://)",
                path.display()
            ),
        )),
    }
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

fn networked(kind: u64) -> Option<&'static str> {
    let found = NETWORKED.iter().find(|(magic, _)| *magic == kind);
    found.map(|(_, name)| *name)
}

fn boot_id() -> Result<BootId, Trouble> {
    if !cfg!(target_os = "linux") {
        let what = "file: tells one boot from the next by Linux's boot id, because its leases are counted on the clock \
                    since boot, and this system has no file that says it: use sqlite:FILE for the processes of one machine";
        return Err(Trouble::new(ErrorKind::Unsupported, what.to_owned()));
    }
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|error| io("read", path, &error))?;
    let number = u128::from_str_radix(&text.trim().replace('-', ""), 16);
    number.map(u128::to_be_bytes).map_err(|_| {
        Trouble::new(
            ErrorKind::Unavailable,
            format!(
                "{} does not hold the boot id that Linux writes there",
                path.display()
            ),
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
    fn refuses_a_link_that_another_user_could_have_planted() {
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

    /// Another user flips the last part of the path between a link to a directory of ours and nothing.
    #[test]
    fn a_link_planted_at_any_moment_is_never_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (ours, place) = (temp.path().join("ours"), temp.path().join("place"));
        for path in [&ours, &place] {
            fs::create_dir(path).unwrap();
        }
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)).unwrap();
        let path = place.join("locks");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ = scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = symlink(&ours, &path);
                    let _ = fs::remove_file(&path);
                }
            });
            for _ in 0..2_000 {
                let _ = Dir::open(&path);
                let _ = fs::remove_dir_all(&path);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let left: Vec<_> = fs::read_dir(&ours).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn refuses_a_place_where_others_may_rename_it() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&temp.path().join("locks")).contains("chmod +t"));
    }

    #[test]
    fn opens_regular_files_only_and_never_waits() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        let pipe = rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        );
        pipe.unwrap();
        let _socket = std::os::unix::net::UnixDatagram::bind(path("socket")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("file"), "").unwrap();
        symlink(path("file"), path("link")).unwrap();
        for how in [OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR | OFlags::CREATE] {
            for odd in ["pipe", "socket", "directory", "link"] {
                let error = open_file(&path(odd), how).unwrap_err().at(Step::Claim);
                assert!(error.to_string().contains("regular"), "{odd}: {error}");
            }
            assert!(open_file(&path("file"), how).is_ok());
        }
    }
}
