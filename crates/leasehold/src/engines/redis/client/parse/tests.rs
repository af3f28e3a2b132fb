use proptest::prelude::*;

use super::super::resp::head;
use super::*;
use crate::fuzz::Fuzz;

fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

#[test]
fn everything_a_server_says_is_understood() {
    let refused = Trouble::Refused {
        code: "WRONGPASS".to_owned(),
        detail: "no such user".to_owned(),
    };
    let list = |replies: &[Reply]| Reply::List(replies.to_vec());
    let said: [(&str, Reply); 16] = [
        ("+OK\r\n", text("OK")),
        (":-12\r\n", Reply::Number(-12)),
        ("$5\r\na\r\nbc\r\n", text("a\r\nbc")),
        ("$0\r\n\r\n", text("")),
        ("$-1\r\n", Reply::Nil),
        ("*-1\r\n", Reply::Nil),
        ("_\r\n", Reply::Nil),
        ("#t\r\n", Reply::Number(1)),
        (",1.5\r\n", text("1.5")),
        ("(123456789012345678901\r\n", text("123456789012345678901")),
        ("=5\r\ntxt:a\r\n", text("txt:a")),
        (
            "-WRONGPASS no such user\r\n",
            Reply::Refused(refused.clone()),
        ),
        ("!22\r\nWRONGPASS no such user\r\n", Reply::Refused(refused)),
        (
            "*2\r\n~1\r\n:1\r\n*0\r\n",
            list(&[list(&[Reply::Number(1)]), list(&[])]),
        ),
        ("%1\r\n+a\r\n:1\r\n", list(&[text("a"), Reply::Number(1)])),
        ("|1\r\n+ttl\r\n:3\r\n:7\r\n", Reply::Number(7)),
    ];
    for (bytes, reply) in said {
        assert_eq!(
            read(bytes.as_bytes()),
            Ok(Some((Said::Answer(reply), bytes.len())))
        );
    }
    let push = ">3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n:1\r\n";
    let words = vec![text("message"), text("c"), text("m")];
    assert_eq!(
        read(push.as_bytes()),
        Ok(Some((Said::Push(words), push.len() - 4)))
    );
}

#[test]
fn what_makes_no_sense_is_said() {
    let deep = "*1\r\n".repeat(100);
    for odd in [
        "?\r\n",
        "\r\n",
        ":x\r\n",
        "$-2\r\n",
        "$1\r\nab\r\n",
        "+a\rb",
        "*x\r\n",
        "%9223372036854775807\r\n",
        &deep,
    ] {
        assert!(
            matches!(read(odd.as_bytes()), Err(Trouble::Strange(_))),
            "{odd:?}"
        );
    }
}

#[test]
fn what_is_too_large_is_refused_before_it_comes() {
    let many = format!("*{}\r\n", MOST_ELEMENTS + 1);
    let long = format!("${}\r\n", LARGEST + 1);
    let (line, pushes) = (format!("+{}", "a".repeat(LONGEST_LINE)), ">1000000000\r\n");
    for large in [
        &many,
        &long,
        &line,
        pushes,
        "%1000000000\r\n",
        "!999999999999\r\n",
    ] {
        assert!(read(large.as_bytes()).is_err(), "{:.20}", large);
    }
}

/// Lists of lists of nothing: small on the wire, and large once it is read.
#[test]
fn a_frame_is_bounded_however_it_is_nested() {
    let inner = format!("*{}\r\n{}", 1000, "_\r\n".repeat(1000));
    let bytes = format!("*10000\r\n{}", inner.repeat(2000));
    assert!(in_pieces(bytes.as_bytes(), 16 * 1024).is_err());
    let text = format!("$1000000\r\n{}\r\n", "a".repeat(1_000_000));
    let bytes = format!("*20\r\n{}", text.repeat(20));
    assert!(in_pieces(bytes.as_bytes(), 16 * 1024).is_err());
}

/// The first value in these bytes.
fn read(bytes: &[u8]) -> Result<Option<(Said, usize)>, Trouble> {
    let (length, said) = Parser::default().read(bytes)?;
    Ok(said.map(|said| (said, length)))
}

/// The values in bytes that come in pieces of so many.
fn in_pieces(bytes: &[u8], piece: usize) -> Result<Vec<Said>, Trouble> {
    let (mut parser, mut buffer, mut all) = (Parser::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let (length, said) = parser.read(&buffer)?;
            drop(buffer.drain(..length));
            match said {
                Some(said) => all.push(said),
                None => break,
            }
        }
    }
    Ok(all)
}

fn replies() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        Just(Reply::Nil),
        any::<i64>().prop_map(Reply::Number),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(Reply::Text),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop::collection::vec(inner, 0..5).prop_map(Reply::List)
    })
}

fn write(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Nil => out.extend_from_slice(b"_\r\n"),
        Reply::Number(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
        Reply::Text(text) => {
            head(out, b'$', text.len());
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
        Reply::List(list) => {
            head(out, b'*', list.len());
            list.iter().for_each(|reply| write(reply, out));
        }
        Reply::Refused(_) => unreachable!("not made here"),
    }
}

/// Bytes that look like what a server says, with wrong turns.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "+OK", ":1", "$3", "abc", "*2", "%1", "|1", ">3", "~2", "_", "#t", "$-1", "*-1", "-ERR x",
        "!1", "*", "$",
    ];
    let numbers = ["9223372036854775807", "-2", "1000000000", "16777217"];
    let word = prop::sample::select([&words[..], &numbers[..]].concat());
    let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "", "\r"]);
    let line = (word, end).prop_map(|(word, end)| format!("{word}{end}").into_bytes());
    prop::collection::vec(line, 0..30).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// However the bytes come in pieces, nothing is understood before its end, and nothing else at its end.
    #[test]
    fn pieces_make_no_difference(replies in prop::collection::vec(replies(), 1..4), piece in 1..40usize) {
        let mut bytes = Vec::new();
        replies.iter().for_each(|reply| write(reply, &mut bytes));
        let said: Vec<_> = replies.into_iter().map(Said::Answer).collect();
        prop_assert_eq!(in_pieces(&bytes[..bytes.len() - 1], piece).map(|said| said.len()), Ok(said.len() - 1));
        prop_assert_eq!(in_pieces(&bytes, piece), Ok(said));
    }

    /// Any bytes are read, refused or waited for.
    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1..40usize) {
        let _ = in_pieces(&bytes, piece);
    }

    /// The same for bytes that get further.
    #[test]
    fn what_is_nearly_right_is_taken(bytes in nearly(), piece in 1..40usize) {
        let whole = in_pieces(&bytes, usize::MAX >> 1);
        let pieces = in_pieces(&bytes, piece);
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
    }
}

/// What a reply is made of, roughly.
fn shape(reply: &Reply) -> u64 {
    match reply {
        Reply::Nil => 1,
        Reply::Number(number) => 2 + u64::from(*number < 0),
        Reply::Text(text) => 4 + u64::from(text.is_empty()),
        Reply::Refused(_) => 6,
        Reply::List(list) => list.iter().take(6).fold(7, |sum, reply| {
            sum.wrapping_mul(31).wrapping_add(shape(reply))
        }),
    }
}

/// The first byte of an input says in what pieces the rest comes.
#[cfg_attr(test, test)]
pub(crate) fn inputs_that_no_server_wrote() {
    let fuzz = Fuzz {
        name: "resp",
        words: &[
            b"\r\n",
            b"$-1\r\n",
            b"*2\r\n",
            b"%1\r\n",
            b"|1\r\n",
            b">3\r\n",
            b"=5\r\n",
            b"!3\r\n",
            b"held ",
            b"waiting ",
            b"alone ",
            b"message",
            b"G ",
            b"E ",
            b"16777216",
            b"1000000",
        ],
    };
    fuzz.run(&[], |input| {
        let (piece, bytes) = input.split_first().unwrap_or((&0, &[]));
        let piece = usize::from(*piece) + 1;
        let said = in_pieces(bytes, piece);
        // An error shows where it was noticed, and that depends on the pieces.
        let whole = in_pieces(bytes, usize::MAX);
        assert_eq!(
            said.as_ref().ok(),
            whole.as_ref().ok(),
            "in pieces of {piece}"
        );
        match said {
            Err(_) => (false, Vec::new()),
            Ok(said) => {
                let shape = |said: &Said| match said {
                    Said::Push(words) => words.iter().map(shape).fold(0, u64::wrapping_add),
                    Said::Answer(reply) => shape(reply),
                };
                (true, said.iter().take(4).map(shape).collect())
            }
        }
    });
}
