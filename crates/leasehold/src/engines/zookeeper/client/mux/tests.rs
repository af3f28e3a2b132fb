//! A mux whose server is the test.

use super::*;

fn connected() -> Arc<Mux> {
    let mux = Mux::new();
    mux.up();
    mux
}

/// The xids and operations of the requests since the last call.
fn sent(mux: &Mux) -> Vec<(i32, i32)> {
    let (out, mut at, mut sent) = (mux.take_out(), 0, Vec::new());
    while at < out.len() {
        let mut frame = Decoder(&out[at..]);
        at += 4 + frame.int().unwrap() as usize;
        sent.push((frame.int().unwrap(), frame.int().unwrap()));
    }
    sent
}

fn frame(encoder: Encoder) -> Frame {
    let bytes = encoder.done()[4..].to_vec();
    Frame { bytes, cut: None }
}

fn answer(xid: i32, code: i32) -> Frame {
    frame(Encoder::frame().int(xid).long(9).int(code))
}

/// A deletion, in a frame with this zxid.
fn deleted(path: &str, zxid: i64) -> Frame {
    let event = Encoder::frame().int(EVENT).long(zxid).int(0);
    frame(event.int(2).int(3).text(path))
}

fn request(path: &str) -> Encoder {
    Encoder::request(Op::GetData).text(path).flag(true)
}

fn data(path: &str) -> Option<Key> {
    Some((Of::Data, path.to_owned()))
}

#[tokio::test]
async fn answers_go_to_the_requests_in_their_order() {
    let mux = connected();
    let (first, second) = (mux.ask(request("/a"), None), mux.ask(request("/b"), None));
    assert_eq!(sent(&mux), [(1, 4), (2, 4)]);
    assert_eq!(mux.hear(answer(1, -101)), Ok(1));
    assert_eq!(first.await.err(), Some(Trouble::NoNode));
    assert_eq!(mux.hear(answer(2, 0)), Ok(2));
    assert!(second.await.unwrap().body().0.is_empty());
    assert_eq!(mux.zxid(), 9);
    assert!(mux.hear(answer(3, 0)).is_err(), "without a request");
}

#[tokio::test]
async fn an_answer_out_of_order_ends_the_connection() {
    let mux = connected();
    let (first, _second) = (mux.ask(request("/a"), None), mux.ask(request("/b"), None));
    assert!(mux.hear(answer(2, 0)).is_err());
    mux.down("it makes no sense");
    assert!(matches!(first.await, Err(Trouble::Unknown(_))));
}

/// An answer over the cap fails its own request; the connection goes on.
#[tokio::test]
async fn an_answer_over_the_cap_is_refused_alone() {
    let mux = connected();
    let (first, second) = (mux.ask(request("/a"), None), mux.ask(request("/b"), None));
    let cut = Some(2_000_000);
    let long = Frame {
        cut,
        ..answer(1, 0)
    };
    assert_eq!(mux.hear(long), Ok(1));
    let refused = first.await.err().map(|trouble| trouble.to_string());
    assert!(refused.is_some_and(|why| why.contains("2000000") && why.contains("jute.maxbuffer")));
    assert_eq!(mux.hear(answer(2, 0)), Ok(2));
    assert!(second.await.is_ok());
}

#[tokio::test]
async fn a_request_dropped_before_there_is_a_connection_is_not_sent() {
    let mux = Mux::new();
    drop(mux.ask(request("/dropped"), None));
    let kept = mux.ask(request("/kept"), None);
    mux.up();
    assert_eq!(sent(&mux).len(), 1);
    mux.down("lost");
    let unknown = kept.await;
    assert!(matches!(unknown, Err(Trouble::Unknown(_))));
    let waits = mux.ask(request("/never"), None);
    mux.over(&Trouble::Dead("over".into()));
    assert_eq!(waits.await.err(), Some(Trouble::Dead("over".into())));
    let late = mux.ask(request("/late"), None);
    assert_eq!(late.await.err(), Some(Trouble::Dead("over".into())));
    assert_eq!(*mux.connectivity.borrow(), Connectivity::Over);
}

#[tokio::test]
async fn a_dropped_watch_is_taken_back_unless_another_request_sets_it() {
    let mux = connected();
    let first = mux.ask(request("/a"), data("/a"));
    assert_eq!(mux.hear(answer(1, 0)), Ok(1));
    let watch = first.await.unwrap().watch.unwrap();
    let second = mux.ask(request("/a"), data("/a"));
    assert_eq!(sent(&mux).len(), 2);
    drop(watch);
    assert!(sent(&mux).is_empty(), "the second request sets it");
    assert_eq!(mux.hear(answer(2, 0)), Ok(2));
    drop(second.await.unwrap().watch);
    assert_eq!(sent(&mux), [(3, Op::RemoveWatches as i32)]);
}

/// From 3.9 on events carry the zxid of their change. Two events of one change, and the connection lost between them:
/// the second must be asked for again.
#[tokio::test]
async fn the_zxid_of_an_event_is_not_the_last_that_was_seen() {
    let mux = connected();
    let read = mux.ask(request("/a"), data("/a"));
    assert_eq!(mux.hear(answer(1, 0)), Ok(1));
    let watch = read.await.unwrap().watch.unwrap();
    assert_eq!(mux.hear(deleted("/a", 12)), Ok(EVENT));
    assert_eq!(mux.zxid(), 9);
    watch.await;
    assert_eq!(sent(&mux).len(), 1, "the server has forgotten it by itself");
}
