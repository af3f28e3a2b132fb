//! Hazards of the file engine, with real processes: killed, stopped, two hundred of them, without space, without the
//! directory, without the right.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold_testkit::disk::Disk;
use leasehold_testkit::poll::until;
use leasehold_testkit::process::Process;
use leasehold_testkit::skip;
use rustix::process::Signal;
use tempfile::TempDir;

struct World {
    home: TempDir,
    lease: Duration,
}

impl World {
    fn new(lease: Duration) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        Self { home, lease }
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("locks")
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_locker"));
        let _ = command
            .arg(format!("file:{}", dir.display()))
            .arg(self.lease.as_millis().to_string());
        command
    }

    fn locker(&self) -> Process {
        let locker = Process::start(&mut self.command(&self.dir()));
        assert_eq!(locker.hear(), "ready");
        locker
    }

    fn file(&self, content: &str) -> String {
        let path = self.home.path().join("resource");
        std::fs::write(&path, content).expect("writable");
        path.to_string_lossy().into_owned()
    }

    fn lines(&self) -> usize {
        std::fs::read_dir(self.dir().join("lines")).map_or(0, Iterator::count)
    }
}

fn fence(answer: &str) -> u64 {
    let fence = answer
        .strip_prefix("held ")
        .and_then(|fence| fence.parse().ok());
    fence.unwrap_or_else(|| panic!("not held: {answer}"))
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_killed_holder_is_noticed_at_once() {
    let world = World::new(LONG);
    let (mut holder, mut waiter) = (world.locker(), world.locker());
    let first = fence(&holder.ask("lock x"));
    waiter.say("lock x");
    until("the waiter stands in line", || in_line(&world, 1));
    let clock = Clock::boot();
    let before = clock.now();
    holder.kill();
    let second = fence(&waiter.hear());
    let took = Duration::from_micros(clock.now() - before);
    println!("a killed holder's lock passed on after {took:?}");
    assert!(second > first);
    assert!(
        took < Duration::from_secs(5),
        "took {took:?}; the lease is an hour"
    );
    assert_eq!(waiter.ask("release x"), "Released");
}

#[test]
fn killed_waiters_are_passed_over() {
    let world = World::new(LONG);
    let mut holder = world.locker();
    let _ = fence(&holder.ask("lock x"));
    let mut waiters: Vec<_> = (0..4).map(|_| world.locker()).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.say("lock x");
        until("it stands in line", || in_line(&world, at + 1));
    }
    let last = waiters.pop().expect("four");
    waiters.into_iter().for_each(Process::kill);
    assert_eq!(holder.ask("release x"), "Released");
    let _ = fence(&last.hear());
}

#[test]
fn holder_and_all_waiters_but_the_last_are_killed() {
    let world = World::new(LONG);
    let mut holder = world.locker();
    let _ = fence(&holder.ask("lock x"));
    let mut waiters: Vec<_> = (0..3).map(|_| world.locker()).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.say("lock x");
        until("it stands in line", || in_line(&world, at + 1));
    }
    let last = waiters.pop().expect("three");
    waiters.into_iter().for_each(Process::kill);
    holder.kill();
    let _ = fence(&last.hear());
}

#[test]
fn a_stopped_holder_finds_itself_lost_and_its_fence_protects() {
    let world = World::new(Duration::from_millis(500));
    let (mut holder, mut other) = (world.locker(), world.locker());
    let resource = world.file("0");
    let old = fence(&holder.ask("lock x"));
    assert_eq!(holder.ask(&format!("write x {resource}")), "accepted");
    holder.signal(Signal::STOP);
    let new = fence(&other.ask("lock x"));
    assert!(new > old, "{new} after {old}");
    assert_eq!(other.ask(&format!("write x {resource}")), "accepted");
    // Queued while it stands still: its first step after the pause.
    holder.say("state x");
    holder.say(&format!("write x {resource}"));
    holder.signal(Signal::CONT);
    assert_eq!(holder.hear(), "Lost", "it looks at its guard first");
    assert!(
        holder.hear().starts_with("refused"),
        "it does not look, and the fence protects"
    );
    assert!(holder.ask("lost x").starts_with("lost "));
    assert_eq!(holder.ask("release x"), "WasLost");
    assert_eq!(other.ask("state x"), "Valid");
    assert_eq!(other.ask("release x"), "Released");
}

#[test]
fn two_hundred_processes_count_exactly() {
    const PROCESSES: usize = 200;
    const ROUNDS: usize = 10;
    let world = World::new(LONG);
    let counter = world.file("0");
    let mut lockers: Vec<_> = (0..PROCESSES).map(|_| world.locker()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count x {counter} {ROUNDS}"));
    }
    for locker in &lockers {
        assert_eq!(locker.hear(), "counted");
    }
    let counted = std::fs::read_to_string(&counter).expect("readable");
    assert_eq!(counted, (PROCESSES * ROUNDS).to_string(), "lost updates");
    for locker in &mut lockers {
        assert!(locker.ask("shutdown").contains("abandoned: 0"));
    }
    assert_eq!(world.lines(), 0, "files of idle names are removed");
}

#[test]
fn crashes_among_many_lose_nothing() {
    let world = World::new(LONG);
    let counter = world.file("0");
    let mut lockers: Vec<_> = (0..12).map(|_| world.locker()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count x {counter} 500"));
    }
    // Killed wherever they are: holding, waiting, in the middle of a change of the line's file.
    for locker in lockers.drain(..6) {
        let before = std::fs::read_to_string(&counter).expect("readable");
        until("some work is done", || {
            let now = std::fs::read_to_string(&counter).expect("readable");
            if now == before { Err(now) } else { Ok(()) }
        });
        locker.kill();
    }
    for locker in &lockers {
        assert_eq!(locker.hear(), "counted");
    }
    let counted: u64 = std::fs::read_to_string(&counter)
        .expect("readable")
        .parse()
        .expect("a number");
    assert!(
        (6 * 500..=12 * 500).contains(&counted),
        "lost updates: {counted}"
    );
}

#[test]
fn the_directory_deleted_underneath_is_told_and_survived() {
    let world = World::new(Duration::from_millis(600));
    let (mut holder, mut other) = (world.locker(), world.locker());
    let _ = fence(&holder.ask("lock x"));
    std::fs::remove_dir_all(world.dir()).expect("removed");
    assert!(holder.ask("lost x").starts_with("lost "), "told");
    assert_eq!(holder.ask("release x"), "WasLost");
    // Both work on in the directory that is made again, and exclude each other there.
    let _ = fence(&other.ask("lock x"));
    assert_eq!(holder.ask("try x"), "busy");
    assert_eq!(other.ask("release x"), "Released");
    let _ = fence(&holder.ask("lock x"));
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    if skip::asked_for("full-disk") {
        return;
    }
    let world = World::new(Duration::from_secs(60));
    let disk = Disk::small(&world.home.path().join("disk"), 256);
    let mut locker = Process::start(&mut world.command(&disk.path().join("locks")));
    assert_eq!(locker.hear(), "ready");
    let _ = fence(&locker.ask("lock held"));
    disk.fill();
    let refused = locker.ask("lock another");
    assert!(
        refused.starts_with("error unavailable") && refused.contains("space"),
        "{refused}"
    );
    assert_eq!(locker.ask("state held"), "Valid");
    assert_eq!(
        locker.ask("release held"),
        "Released",
        "what is held can be given back"
    );
    assert!(
        locker.ask("try held").starts_with("held "),
        "and taken again"
    );
    disk.free();
    let _ = fence(&locker.ask("lock another"));
}

/// The locker as the user `nobody`, from a copy that it may run, on a place of its own.
fn by_another_user(world: &World, url: &str) -> Process {
    // The way to the directory is open; the directory itself is not.
    open_to_all(world.home.path());
    let mut theirs = Command::new("setpriv");
    let _ = theirs.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let program = world.home.path().join("locker");
    let _ = std::fs::copy(env!("CARGO_BIN_EXE_locker"), &program).expect("copied");
    let lease = world.lease.as_millis().to_string();
    Process::start(theirs.arg(&program).args([url, &lease]))
}

#[test]
fn another_user_is_kept_out() {
    if skip::asked_for("two-users") {
        return;
    }
    let world = World::new(LONG);
    let _ours = world.locker();
    let theirs = by_another_user(&world, &format!("file:{}", world.dir().display()));
    let refused = theirs.hear();
    assert!(refused.starts_with("error denied"), "{refused}");
}

/// No user can take another's default place beforehand, and one without a place of its own is told what to do.
#[test]
fn the_default_place_is_one_that_only_its_user_can_make() {
    if skip::asked_for("two-users") {
        return;
    }
    let world = World::new(LONG);
    let refused = by_another_user(&world, "file:").hear();
    assert!(
        refused.starts_with("error denied") && refused.contains("LEASEHOLD_URL=file:DIR"),
        "`nobody` has no home: {refused}"
    );
    // Root's is in a place where only root may make anything.
    let parent = std::fs::metadata("/run").expect("/run");
    let mode = std::os::unix::fs::PermissionsExt::mode(&parent.permissions());
    assert_eq!(mode & 0o022, 0, "/run can be written to by other users");
}

/// In a place that all may write to, another user was there first: refused, and nothing of ours is put there.
#[test]
fn a_directory_that_another_user_made_first_is_refused() {
    if skip::asked_for("two-users") {
        return;
    }
    let world = World::new(LONG);
    let shared = world.home.path().join("shared");
    std::fs::create_dir(&shared).expect("a directory");
    set_mode(&shared, 0o1777);
    let theirs = by_another_user(&world, &format!("file:{}", shared.join("locks").display()));
    assert_eq!(theirs.hear(), "ready", "the first");
    let ours = Process::start(&mut world.command(&shared.join("locks")));
    let refused = ours.hear();
    assert!(
        refused.starts_with("error denied") && refused.contains("another user"),
        "{refused}"
    );
}

#[test]
fn a_file_system_that_may_be_remote_is_refused() {
    if skip::asked_for("fuse") {
        return;
    }
    let world = World::new(LONG);
    let (real, mounted) = (
        world.home.path().join("real"),
        world.home.path().join("mounted"),
    );
    for folder in [&real, &mounted] {
        std::fs::create_dir(folder).expect("a directory");
    }
    let bindfs = Command::new("bindfs").arg(&real).arg(&mounted).status();
    assert!(
        bindfs.is_ok_and(|status| status.success()),
        "bindfs is not there or may not mount: run scripts/servers, or skip with LEASEHOLD_SKIP=fuse"
    );
    let _unmount = Unmount(mounted.clone());
    let locker = Process::start(&mut world.command(&mounted.join("locks")));
    let refused = locker.hear();
    assert!(refused.starts_with("error unsupported"), "{refused}");
}

/// Unmounts when the test ends, however it ends.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_level_that_is_not_reached_is_refused_with_the_reason() {
    let world = World::new(LONG);
    let url = format!("file:{}", world.dir().display());
    let require = |level| {
        let options = leasehold::ConnectOptions::new().require(level);
        leasehold::blocking::connect_with(&url, options)
    };
    assert!(require(leasehold::engine::Level::L2).is_ok());
    let refused = require(leasehold::engine::Level::L3).expect_err("L3 needs a transaction");
    assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("L2"), "{refused}");
}

fn open_to_all(path: &Path) {
    set_mode(path, 0o755);
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("ours");
}

/// Whether so many claims wait, as `inspect` of another process shows it.
fn in_line(world: &World, waiters: usize) -> Result<(), String> {
    let url = format!("file:{}", world.dir().display());
    let client = leasehold::blocking::connect(&url).expect("connected");
    let lines = client
        .inspect(&leasehold::engine::Query::all())
        .expect("inspected");
    match lines.iter().map(|line| line.waiters.len()).sum::<usize>() {
        count if count == waiters => Ok(()),
        _ => Err(format!("{lines:?}")),
    }
}
