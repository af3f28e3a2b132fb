//! The real libraries that ours contends with, as processes: `interop/java`, `interop/python` and `interop/go`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// The Java program, ready to be started; its first argument says which library.
///
/// # Panics
/// If it cannot be built.
pub fn java(library: &str) -> Command {
    java_in(library, "interop-java", &[])
}

/// The Java program with another Redisson than today's.
///
/// # Panics
/// If it cannot be built.
pub fn redisson_of(version: &str) -> Command {
    let place = format!("interop-java-redisson-{version}");
    java_in("redisson", &place, &[&format!("-Dredisson={version}")])
}

fn java_in(library: &str, place: &str, settings: &[&str]) -> Command {
    // One build at a time, and each of them once.
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let (source, out) = (interop("java"), built(place));
    let mut done = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if done.insert(out.clone()) {
        let lib = format!("-DoutputDirectory={}", out.join("lib").display());
        let mut build = Command::new("mvn");
        let _ = build.arg("-q").arg("-f").arg(source.join("pom.xml"));
        let _ = build.arg(format!("-Dout={}", out.display())).args(settings);
        let _ = build.args([
            "compile",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            &lib,
        ]);
        build_once(build, "mvn", &source, &out);
    }
    drop(done);
    let classes = format!("{0}/classes:{0}/lib/*", out.display());
    let mut command = Command::new("java");
    let _ = command.args(["-Xmx96m", "-XX:+UseSerialGC", "-cp", &classes]);
    let _ = command.args(["leasehold.interop.Main", library]);
    command
}

/// The Python program, ready to be started; its first argument says which library.
///
/// # Panics
/// If its libraries cannot be installed.
pub fn python(library: &str) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let out = BUILT.get_or_init(|| {
        let (source, out) = (interop("python"), built("interop-python"));
        let mut install = Command::new("python3");
        let _ = install
            .args(["-m", "pip", "install", "-q", "--target"])
            .arg(&out);
        let _ = install.arg("-r").arg(source.join("requirements.txt"));
        build_once(install, "python3 -m pip", &source, &out);
        out
    });
    let mut command = Command::new("python3");
    let _ = command.env("PYTHONPATH", out).arg("-u");
    let _ = command.arg(interop("python").join("main.py")).arg(library);
    command
}

/// The Go program in this folder of `interop/go`, ready to be started.
///
/// # Panics
/// If it cannot be built.
pub fn go(folder: &str) -> Command {
    // One build at a time, and each of them once.
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let source = interop("go").join(folder);
    let out = built(&format!("interop-go-{folder}"));
    let mut done = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if done.insert(out.clone()) {
        std::fs::create_dir_all(&out).expect("a directory");
        let mut build = Command::new("go");
        let _ = build.args(["build", "-C"]).arg(&source);
        let _ = build.arg("-o").arg(out.join("peer")).arg(".");
        build_once(build, "go", &source, &out);
    }
    drop(done);
    Command::new(out.join("peer"))
}

/// Runs a build unless its result is newer than its sources.
fn build_once(mut build: Command, tool: &str, source: &Path, out: &Path) {
    let stamp = out.join("built");
    if changed(&stamp).is_some_and(|built| built > newest(source)) {
        return;
    }
    let done = build.output();
    let done = done.unwrap_or_else(|error| {
        panic!("{tool} did not start ({error}): run scripts/servers interop")
    });
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{build:?} failed:\n{said}");
    std::fs::write(stamp, "").expect("writable");
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn newest(directory: &Path) -> SystemTime {
    let entries = std::fs::read_dir(directory).expect("it is there").flatten();
    let changes = entries.filter_map(|entry| match entry.path() {
        path if path.is_dir() => Some(newest(&path)),
        path => changed(&path),
    });
    changes.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn interop(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../interop")
        .join(language)
}

/// A place in the target directory: above the profile's, where programs are, or tests one deeper.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    let mut above = program.ancestors().skip(1);
    let beside = above.find(|directory| !directory.ends_with("deps"));
    let target = beside.and_then(Path::parent).expect("a target directory");
    target.join(name)
}
