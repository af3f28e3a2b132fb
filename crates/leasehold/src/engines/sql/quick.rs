//! The statements of a claim that is alone: one to take an idle line, one to leave it. Each decides by the line's
//! own row alone, so it is right however long it waited for that row.
//!
//! They are asked again and again, so their values go beside them and the database keeps what it made of them. A name
//! that this process has used before has a row, most likely; to change it costs about half of what it costs to insert
//! it or change it. What else they cost a server is the number of terms it has to look at, and a row that changes its
//! size: so there are few conditions, MariaDB is asked for the time once, and no column is ever NULL.

use sha2::{Digest, Sha256};

use super::crowd::{join_text, leave_text};
use super::dialect::Dialect;
use super::post;
use super::rows::{FREE, Key};
use super::tables::Tables;
use crate::claim::{Claim, ClaimId, SessionId};
use crate::clock::micros;
use crate::fence::FENCE_BLOCK;
use crate::identity::Identity;
use crate::line::Moment;

/// Above this the careful way looks whether fences are left.
pub(super) const PLENTY: i64 = i64::MAX - (1 << 40);

/// A value of a statement.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Value {
    pub(super) fn id(id: u128) -> Self {
        Self::Bytes(id.to_be_bytes().into())
    }
}

/// A statement whose values are bound.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    /// Whether it tells a number of its own, rather than how many rows it changed.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "for MySQL"))]
    pub(super) tells: bool,
    /// Made of the text: the same name means the same statement.
    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres")),
        expect(dead_code, reason = "for servers that are not in this process")
    )]
    pub(super) name: String,
    /// Which value belongs to each place, for a database that counts places.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "for MySQL"))]
    pub(super) places: Vec<usize>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Quick {
    open: Statement,
    insert: Statement,
    take: Statement,
    release: Statement,
    see: Statement,
    /// Of a crowd.
    pub(super) join: Statement,
    pub(super) leave: Statement,
}

impl Quick {
    /// For these tables. `now` is how the database is asked for the time, unless the time is bound as well.
    pub(super) fn new(tables: &Tables, now: Option<&str>) -> Self {
        Self {
            open: Statement::new(tables, &open(tables, now.unwrap_or("#5"))),
            insert: Statement::new(
                tables,
                &insert(tables, now.unwrap_or("#8"), now.unwrap_or("#9")),
            ),
            take: Statement::new(
                tables,
                &take(tables, now.unwrap_or("#7"), now.unwrap_or("#8")),
            ),
            release: Statement::new(tables, &release(tables, now.unwrap_or("#4"))),
            see: Statement::new(tables, &see(tables)),
            join: Statement::new(tables, &join_text(tables, now.unwrap_or("#5"))),
            leave: Statement::new(
                tables,
                &leave_text(tables, now.unwrap_or("#5"), now.unwrap_or("#6")),
            ),
        }
    }

    /// Takes note of a session; one that is noted stays as it is.
    pub(super) fn open(
        &self,
        session: SessionId,
        who: &Identity,
        at: Option<Moment>,
    ) -> (&Statement, Vec<Value>) {
        let mut values = vec![
            Value::id(session.as_u128()),
            Value::Bytes(post::cut(&who.host, 255).as_bytes().into()),
            Value::Number(who.pid.into()),
            Value::Bytes(post::cut(&who.command, 1024).as_bytes().into()),
        ];
        values.extend(at.map(|at| Value::Number(at.now)));
        (&self.open, values)
    }

    /// Takes an idle line, or a new one unless it is `known` to have a row; answers with the fence, or with nothing
    /// (or 0) if there is no such line.
    pub(super) fn claim(
        &self,
        claim: &Claim,
        session: SessionId,
        known: bool,
        at: Option<Moment>,
    ) -> (&Statement, Vec<Value>) {
        let mut values = vec![
            Value::id(Key::of(&claim.name).0),
            Value::Number(claim.mode.capacity().into()),
            Value::id(claim.id.as_u128()),
            Value::id(session.as_u128()),
            Value::Number(claim.mode.weight().into()),
            Value::Number(micros(claim.lease)),
        ];
        if !known {
            values.push(Value::Bytes(claim.name.as_str().as_bytes().into()));
        }
        if let Some(Moment { now, floor }) = at {
            values.extend([now, floor].map(Value::Number));
        }
        (if known { &self.take } else { &self.insert }, values)
    }

    /// Leaves a line in which the claim is alone; answers with 1, or with nothing (or 0) if it is not.
    pub(super) fn release(
        &self,
        claim: &Claim,
        used: u32,
        at: Option<Moment>,
    ) -> (&Statement, Vec<Value>) {
        let mut values = vec![
            Value::id(Key::of(&claim.name).0),
            Value::id(claim.id.as_u128()),
            Value::Number((used.clamp(1, FENCE_BLOCK) - 1).into()),
        ];
        values.extend(at.map(|at| Value::Number(at.now)));
        (&self.release, values)
    }

    /// One more than the fence of a claim, 1 if it waits; nothing if it is not in the line.
    pub(super) fn see(&self, key: Key, claim: ClaimId) -> (&Statement, Vec<Value>) {
        (&self.see, [key.0, claim.as_u128()].map(Value::id).into())
    }
}

impl Statement {
    /// From a text with `#1`, `#2`, … where the values belong.
    pub(super) fn new(tables: &Tables, text: &str) -> Self {
        let mut parts = text.split('#');
        let mut written = parts.next().unwrap_or_default().to_owned();
        let mut places = Vec::new();
        for part in parts {
            let (digit, rest) = part.split_at(1);
            written.push_str(&tables.dialect.place(digit));
            written.push_str(rest);
            places.extend(digit.parse::<usize>().map(|place| place - 1));
        }
        let digest = Sha256::digest(&written);
        let name = digest[..8].iter().map(|byte| format!("{byte:02x}"));
        Self {
            name: format!("leasehold_{}", name.collect::<String>()),
            tells: written.contains("LAST_INSERT_ID"),
            text: written,
            places,
        }
    }
}

fn open(tables: &Tables, now: &str) -> String {
    let noted = match tables.dialect {
        #[cfg(feature = "mysql")]
        Dialect::Mysql => "ON DUPLICATE KEY UPDATE seen = seen",
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        _ => "ON CONFLICT (id) DO NOTHING",
    };
    format!(
        "INSERT INTO {} (id, host, pid, command, seen) VALUES (#1, #2, #3, #4, {now}) {noted}",
        tables.session
    )
}

fn take(tables: &Tables, now: &str, floor: &str) -> String {
    let larger = tables.dialect.larger();
    let (fence, start, told) = match tables.dialect {
        // An assignment sees the one before it.
        #[cfg(feature = "mysql")]
        Dialect::Mysql => {
            let floor = if floor == now { "since" } else { floor };
            let fence = format!("LAST_INSERT_ID({larger}(last, {floor}) + 1)");
            (fence, "since", "")
        }
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        _ => (
            format!("{larger}(last, {floor}) + 1"),
            now,
            " RETURNING fence",
        ),
    };
    let free = tables.dialect.id(FREE);
    format!(
        "UPDATE {} SET since = {now}, fence = {fence}, capacity = #2, id = #3, session = #4, weight = #5, \
         lease = #6, deadline = {start} + #6 WHERE k = #1 AND id = {free} AND last <= {PLENTY}{told}",
        tables.line
    )
}

fn see(tables: &Tables) -> String {
    let Tables { line, claim, .. } = tables;
    format!(
        "SELECT fence + 1 FROM {line} WHERE k = #1 AND id = #2 \
         UNION ALL SELECT fence + 1 FROM {claim} WHERE k = #1 AND id = #2"
    )
}

fn insert(tables: &Tables, now: &str, floor: &str) -> String {
    let (line, meta) = (&tables.line, &tables.meta);
    let larger = tables.dialect.larger();
    let fence = format!("(SELECT {larger}(floor, {floor}) + 1 FROM {meta})");
    let (alias, fence, told) = match tables.dialect {
        #[cfg(feature = "mysql")]
        Dialect::Mysql => ("", format!("LAST_INSERT_ID({fence})"), ""),
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        _ => (" AS l", fence, " RETURNING fence"),
    };
    let taken = match tables.dialect {
        #[cfg(feature = "mysql")]
        Dialect::Mysql => on_duplicate_key(tables, now, floor),
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        _ => on_conflict(tables, floor),
    };
    format!(
        "INSERT INTO {line}{alias} \
         (k, name, capacity, last, id, session, weight, lease, since, deadline, fence) \
         VALUES (#1, #7, #2, (SELECT floor FROM {meta}), #3, #4, #5, #6, {now}, {now} + #6, \
         {fence}) {taken}{told}"
    )
}

/// What was used of the block of fences is spent, unless another claim was granted a later one, as the rule has it.
fn release(tables: &Tables, now: &str) -> String {
    let larger = tables.dialect.larger();
    let told = match tables.dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => " RETURNING 1::bigint",
        #[cfg(feature = "mysql")]
        Dialect::Mysql => "",
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => " RETURNING 1",
    };
    let free = tables.dialect.id(FREE);
    format!(
        "UPDATE {} SET last = {larger}(last, fence + #3), id = {free} \
         WHERE k = #1 AND id = #2 AND deadline > {now}{told}",
        tables.line
    )
}

/// MariaDB and MySQL. Assignments see the ones before them, so what decides changes last. The fence is told as the last
/// inserted id; a refusal resets what the list of values has set it to.
#[cfg(feature = "mysql")]
fn on_duplicate_key(tables: &Tables, now: &str, floor: &str) -> String {
    let free = tables.dialect.id(FREE);
    let idle = format!("id = {free} AND last <= {PLENTY}");
    let taken = [
        ("capacity", "#2".to_owned()),
        ("session", "#4".to_owned()),
        ("weight", "#5".to_owned()),
        ("lease", "#6".to_owned()),
        ("since", now.to_owned()),
        ("deadline", format!("{now} + #6")),
        ("id", "#3".to_owned()),
    ];
    let taken = taken
        .map(|(column, value)| format!("{column} = IF({idle}, {value}, {column})"))
        .join(", ");
    format!(
        "ON DUPLICATE KEY UPDATE \
         fence = IF({idle}, LAST_INSERT_ID(greatest(last, {floor}) + 1), fence + 0 * LAST_INSERT_ID(0)), {taken}"
    )
}

/// PostgreSQL and SQLite.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn on_conflict(tables: &Tables, floor: &str) -> String {
    let taken = [
        "capacity", "id", "session", "weight", "lease", "since", "deadline",
    ];
    let taken = taken.map(|column| format!("{column} = excluded.{column}"));
    format!(
        "ON CONFLICT (k) DO UPDATE SET fence = {}(l.last, {floor}) + 1, {} WHERE l.id = {} AND l.last <= {PLENTY}",
        tables.dialect.larger(),
        taken.join(", "),
        tables.dialect.id(FREE)
    )
}
