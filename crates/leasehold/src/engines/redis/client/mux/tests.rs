use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;

/// A mux whose driver runs, the other end of its stream, and what is heard.
fn muxed(room: usize) -> (Mux, DuplexStream, mpsc::Receiver<String>) {
    let (near, far) = tokio::io::duplex(room);
    let (reading, writing) = tokio::io::split(near);
    let (tell, heard) = mpsc::channel();
    let hear: Hear = Arc::new(move |channel, message| {
        let text = [channel, b" ", message].concat();
        tell.send(String::from_utf8(text).expect("text"))
            .expect("the test listens");
    });
    let (mux, driver) = over((Box::new(reading), Box::new(writing)), hear);
    drop(spawn(driver));
    (mux, far, heard)
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
fn asks(mux: &Mux, words: &'static [&str]) -> JoinHandle<Result<Vec<Reply>, Trouble>> {
    let mux = mux.clone();
    let calls: Vec<_> = words.iter().map(|word| Call::new(word)).collect();
    spawn(async move { mux.send(&calls).await })
}

#[tokio::test]
async fn answers_go_to_their_callers_in_order() {
    let (mux, mut far, heard) = muxed(1000);
    let first = asks(&mux, &["A"]);
    expect(&mut far, "*1\r\n$1\r\nA\r\n").await;
    let second = asks(&mux, &["B", "C"]);
    expect(&mut far, "*1\r\n$1\r\nB\r\n*1\r\n$1\r\nC\r\n").await;
    let said = b":1\r\n:2\r\n>3\r\n+message\r\n$1\r\nc\r\n$2\r\nhi\r\n:3\r\n";
    far.write_all(said).await.expect("written");
    assert_eq!(first.await.expect("done"), Ok(vec![Reply::Number(1)]));
    let both = vec![Reply::Number(2), Reply::Number(3)];
    assert_eq!(second.await.expect("done"), Ok(both));
    assert_eq!(heard.try_recv().as_deref(), Ok("c hi"));
}

#[tokio::test]
async fn the_answer_to_a_dropped_call_goes_to_no_other() {
    let (mux, mut far, _heard) = muxed(1000);
    let gone = asks(&mux, &["A"]);
    expect(&mut far, "*1\r\n$1\r\nA\r\n").await;
    gone.abort();
    assert!(gone.await.is_err());
    let stays = asks(&mux, &["B"]);
    expect(&mut far, "*1\r\n$1\r\nB\r\n").await;
    far.write_all(b":1\r\n:2\r\n").await.expect("written");
    assert_eq!(stays.await.expect("done"), Ok(vec![Reply::Number(2)]));
}

#[tokio::test]
async fn requests_that_do_not_fit_are_written_later() {
    let (mux, mut far, _heard) = muxed(8);
    let asked = asks(&mux, &["A-WORD-THAT-DOES-NOT-FIT"]);
    expect(&mut far, "*1\r\n$24\r\nA-WORD-THAT-DOES-NOT-FIT\r\n").await;
    far.write_all(b"+a long answer\r\n").await.expect("written");
    let answer = vec![Reply::Text(b"a long answer".to_vec())];
    assert_eq!(asked.await.expect("done"), Ok(answer));
}

#[tokio::test]
async fn a_subscription_is_confirmed_by_its_own_word_only() {
    let (mux, mut far, _heard) = muxed(1000);
    let asked = asks(&mux, &["SSUBSCRIBE"]);
    expect(&mut far, "*1\r\n$10\r\nSSUBSCRIBE\r\n").await;
    let said = b">3\r\n+sunsubscribe\r\n+c\r\n:0\r\n>3\r\n+ssubscribe\r\n+c\r\n:1\r\n";
    far.write_all(said).await.expect("written");
    let replies = asked.await.expect("done").expect("answered");
    assert!(matches!(&replies[..], [Reply::List(words)] if words[0].is(b"ssubscribe")));
}

/// A server that reads nothing costs no more memory than this, however many callers ask and leave.
#[tokio::test]
async fn requests_that_a_silent_server_does_not_read_are_bounded() {
    let (mux, far, _heard) = muxed(1000);
    let call = Call::new("SET").arg(vec![0; MOST_UNSENT / 4]);
    let sent = async || {
        let calls = std::slice::from_ref(&call);
        tokio::time::timeout(Duration::from_millis(1), mux.send(calls)).await
    };
    for _ in 0..5 {
        assert!(sent().await.is_err(), "it waits for an answer");
    }
    for _ in 0..100 {
        assert!(matches!(sent().await, Ok(Err(Trouble::Down(_)))));
    }
    assert!(mux.0.lock().out.len() < 2 * MOST_UNSENT);
    drop(far);
}

#[tokio::test]
async fn a_call_sent_before_the_end_may_have_happened_and_no_other() {
    let (mux, mut far, _heard) = muxed(1000);
    let sent = asks(&mux, &["A"]);
    expect(&mut far, "*1\r\n$1\r\nA\r\n").await;
    drop(far);
    assert!(matches!(sent.await.expect("done"), Err(Trouble::Cut(_))));
    let late = mux.send(&[Call::new("B")]).await;
    assert!(matches!(late, Err(Trouble::Down(_))));
}

#[tokio::test]
async fn an_answer_without_a_question_ends_it() {
    for said in [&b":1\r\n"[..], b"?\r\n"] {
        let (mux, mut far, _heard) = muxed(1000);
        far.write_all(said).await.expect("written");
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), far.read_to_end(&mut rest)).await;
        assert_eq!(read.expect("in time").expect("read"), 0);
        assert!(matches!(
            mux.send(&[Call::new("A")]).await,
            Err(Trouble::Down(_))
        ));
    }
}
