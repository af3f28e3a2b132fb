//! Requests of several parts, which are done whole or not at all.

use super::jute::{In, Op, Out, refusal};
use super::terms::Answer;

/// The head of a part of a request that is done whole or not at all.
pub(super) fn part(request: Out, op: Op) -> Out {
    request.int(op as i32).flag(false).int(-1)
}

pub(super) fn last_part(request: Out) -> Out {
    request.int(-1).flag(true).int(-1)
}

/// What became of the parts: all were done, or the first refusal that is a reason.
pub(super) fn parts(body: &mut In<'_>) -> Answer<()> {
    /// It was not done because of another.
    const ANOTHER: i32 = -2;
    let mut refused = None;
    loop {
        let (kind, last, _) = (body.int()?, body.flag()?, body.int()?);
        match kind {
            _ if last => return refused.map_or(Ok(()), |code| Err(refusal(code))),
            -1 => match body.int()? {
                0 | ANOTHER => {}
                code => refused = refused.or(Some(code)),
            },
            kind if kind == Op::Create as i32 => drop(body.text()?),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::terms::Trouble;
    use super::*;

    fn answer(parts: &[(i32, i32)]) -> Answer<()> {
        let written = parts.iter().fold(Out::frame(), |out, (kind, code)| {
            let out = out.int(*kind).flag(false).int(*code);
            match kind {
                -1 => out.int(*code),
                1 => out.text("/made"),
                _ => out,
            }
        });
        let written = last_part(written).done();
        super::parts(&mut In(&written[4..]))
    }

    #[test]
    fn one_part_that_is_refused_refuses_all() {
        let (delete, create) = (Op::Delete as i32, Op::Create as i32);
        assert_eq!(answer(&[(delete, 0), (create, 0)]), Ok(()));
        assert_eq!(answer(&[(-1, -101), (-1, -2)]), Err(Trouble::NoNode));
        assert_eq!(answer(&[(-1, 0), (-1, -110)]), Err(Trouble::Exists));
        assert!(super::parts(&mut In(&[0, 0])).is_err());
    }
}
