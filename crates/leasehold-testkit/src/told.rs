//! Addresses in what a server tells. Members of a Cluster and sentinels name each other's ports in their answers; a client
//! behind proxies has to be told the proxies' instead.

/// Which ports are told as which. For RESP: a message ends with a line's end, and a number stands alone.
#[derive(Debug, Default, Clone)]
pub(crate) struct Told {
    ports: Vec<(String, String)>,
}

/// The state of a stream between two reads.
#[derive(Debug, Default)]
pub(crate) struct Between {
    last: u8,
    /// Digits at the end of the last read: more of them may come.
    rest: Vec<u8>,
}

impl Told {
    /// # Panics
    /// If a port is not as long as what stands for it: the lengths of strings are told as well.
    pub(crate) fn new(ports: &[(u16, u16)]) -> Self {
        let text = |(server, proxy): &(u16, u16)| (server.to_string(), proxy.to_string());
        let ports: Vec<_> = ports.iter().map(text).collect();
        let same = |(server, proxy): &(String, String)| server.len() == proxy.len();
        assert!(ports.iter().all(same), "ports of one length: {ports:?}");
        Self { ports }
    }

    /// The bytes for the client, in place of those that were read.
    pub(crate) fn tell(&self, between: &mut Between, read: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut between.rest);
        text.extend(read);
        let end = text.iter().rposition(|byte| !byte.is_ascii_digit());
        between.rest = text.split_off(end.map_or(0, |last| last + 1));
        let mut told = Vec::with_capacity(text.len());
        let mut digits = Vec::new();
        for byte in text {
            if byte.is_ascii_digit() {
                digits.push(byte);
                continue;
            }
            told.extend(self.number(between.last, &digits));
            digits.clear();
            told.push(byte);
            between.last = byte;
        }
        told
    }

    /// A number after this byte: a port stands alone, or after its host.
    fn number<'a>(&'a self, after: u8, digits: &'a [u8]) -> &'a [u8] {
        let port = self
            .ports
            .iter()
            .find(|(server, _)| server.as_bytes() == digits);
        match port {
            Some((_, proxy)) if b":\n ".contains(&after) => proxy.as_bytes(),
            _ => digits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] =
        b"-MOVED 7 127.0.0.1:40001\r\n:40001\r\n$5\r\n40002\r\n$7\r\nx40001y\r\n:1740001555\r\n";
    const TOLD: &[u8] =
        b"-MOVED 7 127.0.0.1:50001\r\n:50001\r\n$5\r\n50002\r\n$7\r\nx40001y\r\n:1740001555\r\n";

    #[test]
    fn ports_are_told_wherever_a_read_ends() {
        let ports = Told::new(&[(40001, 50001), (40002, 50002)]);
        for cut in 0..ANSWER.len() {
            let mut between = Between::default();
            let (first, second) = ANSWER.split_at(cut);
            let told = [first, second].map(|part| ports.tell(&mut between, part));
            let text = String::from_utf8_lossy(&told.concat()).into_owned();
            assert_eq!(text, String::from_utf8_lossy(TOLD), "cut at {cut}");
        }
    }
}
