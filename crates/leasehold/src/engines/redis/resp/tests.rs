use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

#[test]
fn a_command_is_its_words_with_their_lengths() {
    let call = Call::new("HELLO 3").arg("ä").arg([0; 10]);
    let mut out = b"before".to_vec();
    call.write_to(&mut out);
    let sent =
        b"before*4\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$2\r\n\xc3\xa4\r\n$10\r\n\0\0\0\0\0\0\0\0\0\0\r\n";
    assert_eq!(out, sent);
    for number in [0, 7, 10, 99, 12_345, u64::MAX] {
        let (mut as_number, mut out) = (Call::default(), Vec::new());
        as_number.push_number(number);
        as_number.write_to(&mut out);
        let text = number.to_string();
        let sent = format!("*1\r\n${}\r\n{text}\r\n", text.len());
        assert_eq!(out, sent.as_bytes());
    }
    assert_eq!(
        format!("{:?}", call.arg("secret")),
        "Call(5 words)",
        "it never shows a password"
    );
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
    assert_eq!(
        read(b"*1000000000\r\n"),
        Ok(None),
        "room is made for what is there"
    );
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

proptest! {
    /// However the bytes come in pieces, nothing is understood before its end, and nothing else at its end.
    #[test]
    fn nothing_is_read_before_its_end(reply in replies(), after in prop::collection::vec(any::<u8>(), 0..8)) {
        let mut bytes = Vec::new();
        write(&reply, &mut bytes);
        for end in 0..bytes.len() {
            prop_assert_eq!(read(&bytes[..end]), Ok(None));
        }
        let length = bytes.len();
        bytes.extend(after);
        prop_assert_eq!(read(&bytes), Ok(Some((Said::Answer(reply), length))));
    }

    /// Whatever comes, it is read, refused or waited for.
    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Some((_, length))) = read(&bytes) {
            prop_assert!(length <= bytes.len());
        }
    }
}
