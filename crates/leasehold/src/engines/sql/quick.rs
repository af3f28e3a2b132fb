//! The two statements of a claim that meets nobody: one to take an idle line, one to leave it. Each decides by the
//! line's own row alone, so it is right however long it waited for that row.

#[cfg(feature = "mysql")]
use super::dialect::Dialect;
use super::rows::Key;
use super::tables::Tables;
use crate::claim::{Claim, SessionId};
use crate::clock::micros;
use crate::fence::FENCE_BLOCK;

/// Above this the careful way looks whether fences are left.
const PLENTY: i64 = i64::MAX - (1 << 40);

impl Tables {
    /// Takes an idle line; answers with the fence, or with nothing (or 0) if the line is not idle.
    pub(super) fn quick_claim(&self, claim: &Claim, session: SessionId, now: &str) -> String {
        let (d, line, lease) = (self.dialect, &self.line, micros(claim.lease));
        let (weight, capacity) = (claim.mode.weight(), claim.mode.capacity());
        let (key, name) = (Key::of(&claim.name).0, claim.name.as_str().as_bytes());
        let (id, session) = (d.id(claim.id.as_u128()), d.id(session.as_u128()));
        let columns =
            "k, name, capacity, last, crowd, id, session, weight, lease, since, deadline, fence";
        let first = match d {
            #[cfg(feature = "mysql")]
            Dialect::Mysql => "LAST_INSERT_ID(floor + 1)",
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            _ => "floor + 1",
        };
        let values = format!(
            "{}, {}, {capacity}, floor + {FENCE_BLOCK}, 0, {id}, {session}, {weight}, {lease}, now, now + {lease}, {first}",
            d.id(key),
            d.bytes(name)
        );
        let from = format!("FROM {}, (SELECT {now} AS now) AS clock", self.meta);
        let insert =
            format!("INSERT INTO {line} AS l ({columns}) SELECT {values} {from} WHERE true");
        match d {
            #[cfg(feature = "mysql")]
            Dialect::Mysql => {
                let insert = insert.replace(" AS l (", " (");
                let taken = [
                    ("capacity", capacity.to_string()),
                    ("session", session),
                    ("weight", weight.to_string()),
                    ("lease", lease.to_string()),
                    ("since", now.to_owned()),
                    ("deadline", format!("{now} + {lease}")),
                    ("last", format!("last + {FENCE_BLOCK}")),
                ];
                format!(
                    "{insert} {}; SELECT LAST_INSERT_ID()",
                    on_duplicate_key(&taken, &id)
                )
            }
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            _ => format!("{insert} {} RETURNING fence", on_conflict()),
        }
    }

    /// Leaves a line in which the claim is alone; answers with 1, or with nothing (or 0) if it is not.
    ///
    /// What is left of the block of fences is given back if nobody was granted a later one, as the rule has it.
    pub(super) fn quick_release(&self, claim: &Claim, used: u32, now: &str) -> String {
        let d = self.dialect;
        let used = used.clamp(1, FENCE_BLOCK);
        let statement = format!(
            "UPDATE {} SET last = CASE WHEN last = fence + {FENCE_BLOCK} - 1 THEN fence + {used} - 1 ELSE last END, \
             id = NULL, session = NULL WHERE k = {} AND crowd = 0 AND id = {} AND deadline > {now}",
            self.line,
            d.id(Key::of(&claim.name).0),
            d.id(claim.id.as_u128())
        );
        match d {
            #[cfg(feature = "mysql")]
            Dialect::Mysql => format!("{statement}; SELECT ROW_COUNT()"),
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            _ => format!("{statement} RETURNING 1"),
        }
    }
}

/// MariaDB and MySQL. Assignments see the ones before them, so what decides changes last. The fence is told as the last
/// inserted id; a refusal resets what the list of values has set it to.
#[cfg(feature = "mysql")]
fn on_duplicate_key(taken: &[(&str, String)], id: &str) -> String {
    let idle = "crowd = 0 AND id IS NULL AND last <=";
    let taken = taken
        .iter()
        .map(|(column, value)| format!("{column} = IF({idle} {PLENTY}, {value}, {column})"));
    let taken: Vec<_> = taken.collect();
    format!(
        "ON DUPLICATE KEY UPDATE \
         fence = IF({idle} {PLENTY}, LAST_INSERT_ID(last + 1), fence + 0 * LAST_INSERT_ID(0)), {}, \
         id = IF({idle} {PLENTY} + {FENCE_BLOCK}, {id}, id)",
        taken.join(", ")
    )
}

/// PostgreSQL and SQLite.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn on_conflict() -> String {
    let taken = [
        "capacity", "id", "session", "weight", "lease", "since", "deadline",
    ];
    let taken = taken.map(|column| format!("{column} = excluded.{column}"));
    format!(
        "ON CONFLICT (k) DO UPDATE SET last = l.last + {FENCE_BLOCK}, fence = l.last + 1, {} \
         WHERE l.crowd = 0 AND l.id IS NULL AND l.last <= {PLENTY}",
        taken.join(", ")
    )
}
