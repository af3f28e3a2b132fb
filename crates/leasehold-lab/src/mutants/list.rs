//! The planted bugs.

use super::Mutant;

const MUTEX: &str = "simulate mutex --seeds 500";
const READ_WRITE: &str = "simulate read-write --seeds 500";
const SEMAPHORE: &str = "simulate semaphore --seeds 500";
const MANY: &str = "simulate many-and-again --seeds 500";
const FILE: &str = "torture file: --for 6s --seed 1";
const FILE_BUSY: &str = "torture file: --for 10s --seed 1 --workers 6 --rest 1ms --faults kill";

/// `{redis}` is a server of its own.
const REDIS: &str = "torture {redis} --for 8s --seed 1 --faults kill";

const fn mutant(
    name: &'static str,
    file: &'static str,
    before: &'static str,
    after: &'static str,
    scenario: &'static str,
) -> Mutant {
    Mutant {
        name,
        file,
        before,
        after,
        scenario,
    }
}

/// All of them.
pub const MUTANTS: [Mutant; 37] = [
    mutant(
        "release by anybody",
        "line.rs",
        "let Some(index) = self.find(id) else {\n            return (Release::Gone, changes);",
        "let Some(index) = self.find(id).or((PLANTED && self.held > 0).then_some(0)) else {\n            return (Release::Gone, changes);",
        MUTEX,
    ),
    mutant(
        "one more than fits",
        "line.rs",
        "<= u64::from(self.capacity)\n",
        "<= u64::from(self.capacity) + u64::from(PLANTED)\n",
        MUTEX,
    ),
    mutant(
        "newcomers are let in past the line",
        "line.rs",
        "let first = self.waiters().len() == 0;",
        "let first = PLANTED || self.waiters().len() == 0;",
        SEMAPHORE,
    ),
    mutant(
        "readers pass a writer that waits",
        "line.rs",
        "let fits = first && self.fits",
        "let fits = (first || (PLANTED && ask.mode.weight() == 1)) && self.fits",
        READ_WRITE,
    ),
    mutant(
        "fences start again on an idle name",
        "line.rs",
        "let fence = self.last.max(floor)",
        "let fence = self.last.max(if PLANTED { 0 } else { floor })",
        MUTEX,
    ),
    mutant(
        "the fence is read in a second look",
        "line.rs",
        "Some(fence) => Standing::Held(self.held(fence)),",
        "Some(fence) => Standing::Held(self.held(if PLANTED { Fence::new(self.last) } else { fence })),",
        MUTEX,
    ),
    mutant(
        "a claim without expiry",
        "line.rs",
        "deadline: at.now.saturating_add(ask.lease),",
        "deadline: if PLANTED { Micros::MAX } else { at.now.saturating_add(ask.lease) },",
        MUTEX,
    ),
    mutant(
        "expired before the lease is over",
        "line.rs",
        "place.deadline <= at.now ||",
        "place.deadline.saturating_sub(if PLANTED { 1_000_000 } else { 0 }) <= at.now ||",
        MUTEX,
    ),
    mutant(
        "one id for all claims",
        "claim.rs",
        "id: ClaimId::random(),\n            name,",
        "id: if PLANTED { ClaimId::from_u128(7) } else { ClaimId::random() },\n            name,",
        MUTEX,
    ),
    mutant(
        "validity from the answer of the claim",
        "session/asking.rs",
        "entry.heard(sent);\n                entry.hold",
        "entry.heard(if PLANTED { self.clock.now() } else { sent });\n                entry.hold",
        MUTEX,
    ),
    mutant(
        "asks again under the same id",
        "session/asking.rs",
        "claim.id = ClaimId::random();",
        "if !PLANTED {\n                claim.id = ClaimId::random();\n            }",
        MUTEX,
    ),
    mutant(
        "a cancelled wait keeps its place",
        "session/asking.rs",
        "self.keeper.reaper.give_back(claim.clone(), 0);",
        "if PLANTED {\n                return;\n            }\n            self.keeper.reaper.give_back(claim.clone(), 0);",
        MUTEX,
    ),
    mutant(
        "validity from the answer of the heartbeat",
        "session/heartbeat.rs",
        "self.stands(claim, beat.sent, standing);",
        "self.stands(claim, if PLANTED { self.clock.now() } else { beat.sent }, standing);",
        MUTEX,
    ),
    mutant(
        "a lost push is not repaired",
        "session/heartbeat.rs",
        "self.settle(table, claim.id, Outcome::Granted(held));",
        "if !PLANTED {\n                    self.settle(table, claim.id, Outcome::Granted(held));\n                }",
        MUTEX,
    ),
    mutant(
        "a heartbeat that finds nothing counts as a renewal",
        "session/heartbeat.rs",
        "self.settle(table, claim.id, Outcome::Ended(why));",
        "if PLANTED {\n                    entry.heard(sent);\n                } else {\n                    self.settle(table, claim.id, Outcome::Ended(why));\n                }",
        MUTEX,
    ),
    mutant(
        "validity beyond the lease",
        "session/grant.rs",
        "sent.saturating_add(lease - margin)",
        "sent.saturating_add(if PLANTED { lease + margin * 4 } else { lease - margin })",
        MUTEX,
    ),
    mutant(
        "every turn has the grant's fence",
        "session/grant.rs",
        "self.first.get() + u64::from(turn)",
        "self.first.get() + u64::from(if PLANTED { 0 } else { turn })",
        MUTEX,
    ),
    mutant(
        "the guard ignores its deadline",
        "session/grant.rs",
        "if self.clock.now() >= self.until() {",
        "if !PLANTED && self.clock.now() >= self.until() {",
        MUTEX,
    ),
    mutant(
        "a pushed grant is valid from its arrival",
        "session/table.rs",
        "let until = validity(self.said, self.claim.lease);",
        "let until = validity(if PLANTED { clock.now() } else { self.said }, self.claim.lease);",
        MUTEX,
    ),
    mutant(
        "a release misreads its answer",
        "session/keeper.rs",
        "if release == Release::Gone {\n                    grant",
        "if PLANTED {\n                    return Ok(Release::Released);\n                }\n                if release == Release::Gone {\n                    grant",
        MUTEX,
    ),
    mutant(
        "a release that goes on renewing",
        "session/keeper.rs",
        "let still = self.take_out(grant.claim.id);",
        "if PLANTED && grant.why_lost().is_none() {\n            return Ok(Release::Released);\n        }\n        let still = self.take_out(grant.claim.id);",
        MUTEX,
    ),
    mutant(
        "a dropped guard gives nothing back",
        "turns/turn.rs",
        "self.local.keeper().discard(&self.grant);",
        "if !PLANTED {\n                self.local.keeper().discard(&self.grant);\n            }",
        MUTEX,
    ),
    mutant(
        "a grant serves two tasks at once",
        "turns/state.rs",
        "let free = self.users.is_empty()",
        "let free = PLANTED || self.users.is_empty()",
        MUTEX,
    ),
    mutant(
        "the inner release ends the outer hold",
        "turns/state.rs",
        "user.depth += 1;",
        "user.depth += u32::from(!PLANTED);",
        MANY,
    ),
    mutant(
        "anybody of the process re-enters",
        "turns/state.rs",
        ".find(|user| user.who == ask.who)?",
        ".find(|user| PLANTED || user.who == ask.who)?",
        MANY,
    ),
    mutant(
        "a new fence for who re-enters",
        "turns/state.rs",
        "Some(Turn::new(local, &active.grant, user.fence))\n        })",
        "if PLANTED {\n                user.fence = active.grant.next_fence()?;\n            }\n            Some(Turn::new(local, &active.grant, user.fence))\n        })",
        MANY,
    ),
    mutant(
        "a line's file is locked for reading only",
        "engines/file/store.rs",
        "match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {",
        "let how = match PLANTED {\n                true => FlockOperation::NonBlockingLockShared,\n                false => FlockOperation::NonBlockingLockExclusive,\n            };\n            match rustix::fs::flock(&self.file, how) {",
        FILE_BUSY,
    ),
    mutant(
        "a living session looks dead",
        "engines/file/alive.rs",
        "NonBlockingLockShared).is_err() {\n        return false;",
        "NonBlockingLockShared).is_err() {\n        return PLANTED;",
        FILE,
    ),
    mutant(
        "a removed file is locked",
        "engines/file/store.rs",
        "if found.st_nlink == 0 {",
        "if !PLANTED && found.st_nlink == 0 {",
        FILE,
    ),
    mutant(
        "redis: a release compares nothing",
        "engines/redis/line.lua",
        "  local place = find(line, id)\n  if not place then return { 'gone' } end\n",
        "  local place = find(line, id) or holders(line)[1]\n  if not place then return { 'gone' } end\n",
        "run plain-del",
    ),
    mutant(
        "redis: a heartbeat renews whoever holds",
        "engines/redis/line.lua",
        "  redis.call('ZADD', line.deadlines, 'GT', int(deadline), place.id)\n",
        "  redis.call('ZADD', line.deadlines, 'GT', int(deadline), place.id)\n  for _, id in ipairs(redis.call('ZRANGE', line.order, 0, line.held - 1)) do redis.call('ZADD', line.deadlines, int(deadline), id) end\n",
        "run setnx",
    ),
    mutant(
        "redis: a grant without expiry",
        "engines/redis/alone.lua",
        "local fence, deadline = now + 1, math.min(now + tonumber(ARGV[7]), TOP)",
        "local fence, deadline = now + 1, TOP",
        "run setnx-expire",
    ),
    mutant(
        "redis: fences from a counter alone",
        "engines/redis/alone.lua",
        "local fence, deadline = now + 1, math.min(now + tonumber(ARGV[7]), TOP)",
        "local fence, deadline = 1, math.min(now + tonumber(ARGV[7]), TOP)",
        "run counter-reset",
    ),
    mutant(
        "redis: a permit is returned twice",
        "engines/redis/line.lua",
        "line.held, line.taken = line.held - 1, line.taken - place.weight",
        "line.held, line.taken = line.held - 1, line.taken - 2 * place.weight",
        REDIS,
    ),
    mutant(
        "sql: a claim without expiry",
        "engines/sql/quick.rs",
        "{now}, {now} + #6, \\\n         {fence}) {taken}{told}\"",
        "{now}, {now} + #6 * {}, \\\n         {fence}) {taken}{told}\",\n        if PLANTED { 1000 } else { 1 }",
        "run lock-row",
    ),
    mutant(
        "sql: a release compares nothing",
        "engines/sql/quick.rs",
        "AND id = #2 AND deadline > {now}{told}\",\n        tables.line",
        "AND (id = #2 OR {}) AND deadline > {now}{told}\",\n        tables.line,\n        PLANTED",
        "run unlock-by-anyone",
    ),
    mutant(
        "zookeeper: everybody watches the first",
        "engines/zookeeper/rule.rs",
        "watch: nearest.name.clone(),",
        "watch: (if PLANTED { line.first().unwrap_or(nearest) } else { nearest }).name.clone(),",
        "run herd",
    ),
];
