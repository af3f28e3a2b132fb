//! A pipe whose other end is in the hands of the test.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::super::channel::halves;
use super::*;

/// A pipe that is up, and the server's end of its connection.
async fn pipe() -> (Arc<Pipe>, TcpStream) {
    let pipe = Pipe::new();
    let far = connect(&pipe).await;
    (pipe, far)
}

async fn connect(pipe: &Pipe) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    let (_, writing) = halves(near.unwrap(), None);
    pipe.up(Arc::new(writing));
    far.unwrap().0
}

/// The number and the operation of the next request.
async fn next(far: &mut TcpStream) -> (i32, i32) {
    let length = far.read_i32().await.unwrap();
    let mut frame = vec![0; length as usize];
    let _ = far.read_exact(&mut frame).await.unwrap();
    let mut frame = In(&frame);
    (frame.int().unwrap(), frame.int().unwrap())
}

/// Nothing was sent since.
fn silent(far: &TcpStream) -> bool {
    let sent = far.try_read(&mut [0; 1]);
    sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn answer(number: i32, code: i32) -> Vec<u8> {
    Out::frame().int(number).long(9).int(code).done()[4..].to_vec()
}

fn request(path: &str) -> Out {
    Out::request(Op::GetData).text(path).flag(true)
}

fn data(path: &str) -> Option<Key> {
    Some((Of::Data, path.to_owned()))
}

#[tokio::test]
async fn answers_go_to_the_requests_in_their_order() {
    let (pipe, mut far) = pipe().await;
    let (first, second) = (pipe.ask(request("/a"), None), pipe.ask(request("/b"), None));
    // Who was not alone has left the writing to the one who keeps the connection.
    assert!(pipe.write().unwrap());
    assert_eq!(next(&mut far).await, (1, 4));
    assert_eq!(next(&mut far).await, (2, 4));
    assert_eq!(pipe.hear(&answer(1, -101)), Ok(1));
    assert_eq!(first.await.err(), Some(Trouble::NoNode));
    assert_eq!(pipe.hear(&answer(2, 0)), Ok(2));
    assert!(second.await.unwrap().body.is_empty());
    assert_eq!(pipe.zxid(), 9);
    assert!(pipe.hear(&answer(3, 0)).is_err(), "nobody asked");
}

#[tokio::test]
async fn an_answer_out_of_order_ends_the_connection() {
    let (pipe, mut far) = pipe().await;
    let (first, _second) = (pipe.ask(request("/a"), None), pipe.ask(request("/b"), None));
    assert_eq!(next(&mut far).await.0, 1);
    assert!(pipe.hear(&answer(2, 0)).is_err());
    pipe.down("it makes no sense");
    assert!(matches!(first.await, Err(Trouble::Unknown(_))));
}

#[tokio::test]
async fn who_is_gone_before_there_is_a_connection_has_not_asked() {
    let pipe = Pipe::new();
    drop(pipe.ask(request("/dropped"), None));
    let kept = pipe.ask(request("/kept"), None);
    let mut far = connect(&pipe).await;
    assert!(pipe.write().unwrap());
    assert_eq!(next(&mut far).await.0, 1);
    assert!(silent(&far));
    pipe.down("lost");
    assert!(
        matches!(kept.await, Err(Trouble::Unknown(_))),
        "it may have happened"
    );
    let waits = pipe.ask(request("/never"), None);
    pipe.over(&Trouble::Dead("over".into()));
    assert_eq!(waits.await.err(), Some(Trouble::Dead("over".into())));
    let late = pipe.ask(request("/late"), None);
    assert_eq!(late.await.err(), Some(Trouble::Dead("over".into())));
    assert_eq!(*pipe.line.borrow(), Line::Over);
}

#[tokio::test]
async fn a_watch_that_is_dropped_is_taken_back_unless_another_is_coming() {
    let (pipe, mut far) = pipe().await;
    let first = pipe.ask(request("/a"), data("/a"));
    assert_eq!(next(&mut far).await, (1, 4));
    assert_eq!(pipe.hear(&answer(1, 0)), Ok(1));
    let watch = first.await.unwrap().watch.unwrap();
    let second = pipe.ask(request("/a"), data("/a"));
    assert_eq!(next(&mut far).await, (2, 4));
    drop(watch);
    assert!(silent(&far), "the second wants it");
    assert_eq!(pipe.hear(&answer(2, 0)), Ok(2));
    drop(second.await.unwrap().watch);
    let taken_back = tokio::time::timeout(Duration::from_secs(5), next(&mut far)).await;
    assert_eq!(taken_back, Ok((3, Op::RemoveWatches as i32)));
}

#[tokio::test]
async fn an_event_is_seen_before_the_answer_that_follows_it() {
    let (pipe, mut far) = pipe().await;
    let read = pipe.ask(request("/a"), data("/a"));
    assert_eq!(next(&mut far).await, (1, 4));
    assert_eq!(pipe.hear(&answer(1, 0)), Ok(1));
    let mut watch = read.await.unwrap().watch.unwrap();
    let event = Out::frame().int(EVENT).long(-1).int(0).int(2).int(3);
    assert_eq!(pipe.hear(&event.text("/a").done()[4..]), Ok(EVENT));
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    let seen = watch.as_mut().poll(&mut nobody);
    assert_eq!(seen, std::task::Poll::Ready(Seen::Deleted));
    assert!(silent(&far), "the server has forgotten it by itself");
}
