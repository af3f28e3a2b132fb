//! Transactions, said in the words of the locks.

use super::client::proto::{
    Compare, DeleteRequest, KeyValue, Op, OpAnswer, PutRequest, RangeRequest, RequestOp, Target,
    TxnRequest, TxnResponse, WatchCreate,
};
use super::names;

/// Results of comparisons.
const EQUAL: i32 = 0;
const LESS: i32 = 2;

/// A transaction to be.
#[derive(Debug, Default)]
pub(super) struct Txn(TxnRequest);

impl Txn {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn request(self) -> TxnRequest {
        self.0
    }

    fn compare(self, key: &str, range_end: Vec<u8>, target: Target) -> Self {
        self.compare_as(EQUAL, key, range_end, target)
    }

    fn compare_as(mut self, result: i32, key: &str, range_end: Vec<u8>, target: Target) -> Self {
        let by = match target {
            Target::Create(_) => 1,
            Target::Mod(_) => 2,
        };
        self.0.compare.push(Compare {
            result,
            by,
            key: key.into(),
            target: Some(target),
            range_end,
        });
        self
    }

    /// If this key does not exist.
    pub(super) fn if_new(self, key: &str) -> Self {
        self.if_made_at(key, 0)
    }

    /// If this key was made by this revision.
    pub(super) fn if_made_at(self, key: &str, revision: i64) -> Self {
        self.compare(key, Vec::new(), Target::Create(revision))
    }

    /// If this key was last changed by this revision.
    pub(super) fn if_changed_at(self, key: &str, revision: i64) -> Self {
        self.compare(key, Vec::new(), Target::Mod(revision))
    }

    /// If every key that begins with this was made by this revision or an older one.
    pub(super) fn if_none_after(self, start: &str, revision: i64) -> Self {
        let younger = Target::Create(revision + 1);
        self.compare_as(LESS, start, names::end(start.as_bytes()), younger)
    }

    /// If no key begins with this.
    pub(super) fn if_none(self, start: &str) -> Self {
        self.compare(start, names::end(start.as_bytes()), Target::Create(0))
    }

    pub(super) fn put(self, key: &str, value: &[u8], lease: i64) -> Self {
        self.success(Op::Put(PutRequest {
            key: key.into(),
            value: value.to_vec(),
            lease,
            ignore_lease: false,
        }))
    }

    /// Another value for a key that exists. It keeps its lease.
    pub(super) fn rewrite(self, key: &str, value: &[u8]) -> Self {
        self.success(Op::Put(PutRequest {
            key: key.into(),
            value: value.to_vec(),
            lease: 0,
            ignore_lease: true,
        }))
    }

    pub(super) fn delete(self, key: &str) -> Self {
        let key = key.into();
        self.success(Op::Delete(DeleteRequest { key }))
    }

    pub(super) fn then(self, range: RangeRequest) -> Self {
        self.success(Op::Range(range))
    }

    fn success(mut self, op: Op) -> Self {
        self.0.success.push(RequestOp { op: Some(op) });
        self
    }

    pub(super) fn otherwise(mut self, range: RangeRequest) -> Self {
        let op = Some(Op::Range(range));
        self.0.failure.push(RequestOp { op });
        self
    }
}

/// The key, without its value.
pub(super) fn range(key: &str) -> RangeRequest {
    let (key, keys_only) = (key.into(), true);
    RangeRequest {
        key,
        keys_only,
        ..RangeRequest::default()
    }
}

/// All keys that begin with this, with or without their values.
pub(super) fn whole(start: &str, keys_only: bool) -> RangeRequest {
    RangeRequest {
        key: start.into(),
        range_end: names::end(start.as_bytes()),
        keys_only,
        ..RangeRequest::default()
    }
}

/// The key that was changed last, of those that are watched.
pub(super) fn last_change(watch: &WatchCreate) -> RangeRequest {
    RangeRequest {
        key: watch.key.clone(),
        range_end: watch.range_end.clone(),
        limit: 1,
        sort_order: 2,
        sort_target: 3,
        keys_only: true,
    }
}

/// What the ranges of a transaction found, in their order.
pub(super) fn ranges(answer: &TxnResponse) -> Vec<&[KeyValue]> {
    let ranges = answer.responses.iter().filter_map(|one| match &one.answer {
        Some(OpAnswer::Range(range)) => Some(&*range.kvs),
        _ => None,
    });
    ranges.collect()
}
