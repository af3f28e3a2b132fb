//! One bad line: its file is kept locked by another process, or damaged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leasehold::ConnectOptions;
use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold::engine::{Clock, File, Query};
use leasehold_testkit::process::Process;

/// The file of a name's line: its readable part is the name without what is no letter and no number.
fn line(dir: &Path, name: &str) -> PathBuf {
    let readable = name.replace(':', "_") + ".";
    let mut files = std::fs::read_dir(dir.join("lines"))
        .expect("lines")
        .flatten();
    let file = files.find(|file| file.file_name().to_string_lossy().starts_with(&readable));
    file.expect("the line's file").path()
}

async fn isolated<U: Send + 'static>(spoil: impl Fn(PathBuf) -> U + Send + Sync + 'static) {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("locks");
    let mut subject = Subject::new(File::new(dir.clone(), Clock::boot()).expect("an engine"));
    subject.spoil = Some(Spoil::new(move |name| spoil(line(&dir, name))));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_another_process_keeps_locked() {
    isolated(|file| {
        let mut command = Command::new("flock");
        let _ = command
            .arg(file)
            .args(["sh", "-c", "echo locked; read -r _"]);
        let process = Process::start(&mut command);
        assert_eq!(process.hear(), "locked");
        process
    })
    .await;
}

struct Restored(PathBuf, Vec<u8>);

impl Drop for Restored {
    fn drop(&mut self) {
        std::fs::write(&self.0, &self.1).expect("writable");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_damaged() {
    isolated(|file| {
        let content = std::fs::read(&file).expect("readable");
        std::fs::write(&file, vec![0xa5; content.len()]).expect("writable");
        Restored(file, content)
    })
    .await;
}

/// Instead of a file, and of the presence of a session: an open waits until another process opens the other end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_in_the_directory_hang_no_client() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("locks");
    let open = async || {
        let engine = File::new(&dir, Clock::boot()).expect("an engine");
        ConnectOptions::new().open(Arc::new(engine)).await
    };
    let client = open().await.expect("a session");
    let held = client.mutex("bad").lock().await.expect("free");
    let sessions = std::fs::read_dir(dir.join("sessions")).expect("sessions");
    let session = sessions.flatten().map(|file| file.path());
    let session = session.filter(|file| file.extension().is_none()).last();
    let pipes = [line(&dir, "bad"), session.expect("one of this client")];
    for pipe in &pipes {
        std::fs::remove_file(pipe).expect("removed");
        let made = Command::new("mkfifo").arg(pipe).status();
        assert!(made.expect("mkfifo").success());
    }
    let looks = async {
        let other = open().await.expect("a session");
        let _good = other.mutex("good").lock().await.expect("free");
        assert!(other.mutex("bad").try_lock().await.is_err(), "a pipe");
        let _ = other.inspect(&Query::all()).await;
    };
    let looked = tokio::time::timeout(Duration::from_secs(60), looks).await;
    looked.expect("an open of a pipe that waits");
    drop(held);
}
