use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;

/// A pipe whose driver runs, the other end of its stream, and what is heard.
fn piped(room: usize, plain: bool) -> (Pipe, DuplexStream, mpsc::Receiver<String>) {
    let (near, far) = tokio::io::duplex(room);
    let (reading, writing) = tokio::io::split(near);
    let (tell, heard) = mpsc::channel();
    let hear: Hear = Arc::new(move |channel, message| {
        let text = [channel, b" ", message].concat();
        tell.send(String::from_utf8(text).expect("text"))
            .expect("somebody listens");
    });
    let (pipe, driver) = over((Box::new(reading), Box::new(writing)), hear, plain);
    drop(spawn(driver));
    (pipe, far, heard)
}

async fn expect(far: &mut DuplexStream, text: &str) {
    let mut read = vec![0; text.len()];
    let done = tokio::time::timeout(Duration::from_secs(10), far.read_exact(&mut read)).await;
    let _ = done.expect("in time").expect("read");
    assert_eq!(String::from_utf8_lossy(&read), text);
}

#[expect(clippy::disallowed_methods, reason = "a test plays several tasks")]
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// Asks each of these words, in one go.
fn asks(pipe: &Pipe, words: &'static [&str]) -> JoinHandle<Result<Vec<Reply>, Trouble>> {
    let pipe = pipe.clone();
    let calls: Vec<_> = words.iter().map(|word| Call::new(word)).collect();
    spawn(async move { pipe.send(&calls).await })
}

#[tokio::test]
async fn answers_go_to_those_who_asked_in_their_order() {
    let (pipe, mut far, heard) = piped(1000, false);
    let first = asks(&pipe, &["A"]);
    expect(&mut far, "*1\r\n$1\r\nA\r\n").await;
    let second = asks(&pipe, &["B", "C"]);
    expect(&mut far, "*1\r\n$1\r\nB\r\n*1\r\n$1\r\nC\r\n").await;
    let said = b":1\r\n:2\r\n>3\r\n+message\r\n$1\r\nc\r\n$2\r\nhi\r\n:3\r\n";
    far.write_all(said).await.expect("written");
    assert_eq!(first.await.expect("done"), Ok(vec![Reply::Number(1)]));
    let both = vec![Reply::Number(2), Reply::Number(3)];
    assert_eq!(second.await.expect("done"), Ok(both));
    assert_eq!(heard.try_recv().as_deref(), Ok("c hi"));
}

#[tokio::test]
async fn the_answer_to_one_who_left_is_not_anothers() {
    let (pipe, mut far, _heard) = piped(1000, false);
    let gone = asks(&pipe, &["A"]);
    expect(&mut far, "*1\r\n$1\r\nA\r\n").await;
    gone.abort();
    assert!(gone.await.is_err());
    let stays = asks(&pipe, &["B"]);
    expect(&mut far, "*1\r\n$1\r\nB\r\n").await;
    far.write_all(b":1\r\n:2\r\n").await.expect("written");
    assert_eq!(stays.await.expect("done"), Ok(vec![Reply::Number(2)]));
}

#[tokio::test]
async fn what_does_not_fit_is_written_later() {
    let (pipe, mut far, _heard) = piped(8, false);
    let asked = asks(&pipe, &["A-WORD-THAT-DOES-NOT-FIT"]);
    expect(&mut far, "*1\r\n$24\r\nA-WORD-THAT-DOES-NOT-FIT\r\n").await;
    far.write_all(b"+a long answer\r\n").await.expect("written");
    let answer = vec![Reply::Text(b"a long answer".to_vec())];
    assert_eq!(asked.await.expect("done"), Ok(answer));
}

#[tokio::test]
async fn a_subscription_is_confirmed_by_its_own_word_only() {
    let (pipe, mut far, _heard) = piped(1000, false);
    let asked = asks(&pipe, &["SSUBSCRIBE"]);
    expect(&mut far, "*1\r\n$10\r\nSSUBSCRIBE\r\n").await;
    let said = b">3\r\n+sunsubscribe\r\n+c\r\n:0\r\n>3\r\n+ssubscribe\r\n+c\r\n:1\r\n";
    far.write_all(said).await.expect("written");
    let replies = asked.await.expect("done").expect("answered");
    assert!(matches!(&replies[..], [Reply::List(words)] if words[0].is(b"ssubscribe")));
}

#[tokio::test]
async fn before_resp3_messages_look_like_answers() {
    let (pipe, mut far, heard) = piped(1000, true);
    let asked = asks(&pipe, &["SUBSCRIBE"]);
    expect(&mut far, "*1\r\n$9\r\nSUBSCRIBE\r\n").await;
    let said = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n:5\r\n";
    let next = asks(&pipe, &["PING"]);
    expect(&mut far, "*1\r\n$4\r\nPING\r\n").await;
    far.write_all(said).await.expect("written");
    assert!(asked.await.expect("done").is_ok());
    assert_eq!(next.await.expect("done"), Ok(vec![Reply::Number(5)]));
    assert_eq!(heard.try_recv().as_deref(), Ok("c m"));
}

#[tokio::test]
async fn what_was_sent_before_the_end_may_have_happened_and_what_was_not_did_not() {
    let (pipe, mut far, _heard) = piped(1000, false);
    let sent = asks(&pipe, &["A"]);
    expect(&mut far, "*1\r\n$1\r\nA\r\n").await;
    drop(far);
    assert!(matches!(sent.await.expect("done"), Err(Trouble::Cut(_))));
    let late = pipe.send(&[Call::new("B")]).await;
    assert!(matches!(late, Err(Trouble::Down(_))));
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_it() {
    for said in [&b":1\r\n"[..], b"?\r\n"] {
        let (pipe, mut far, _heard) = piped(1000, false);
        far.write_all(said).await.expect("written");
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), far.read_to_end(&mut rest)).await;
        assert_eq!(read.expect("in time").expect("read"), 0);
        assert!(matches!(
            pipe.send(&[Call::new("A")]).await,
            Err(Trouble::Down(_))
        ));
    }
}
