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
pub const MUTANTS: [Mutant; 41] = [
    mutant(
        "release by anybody",
        "line.rs",
        "let Some(index) = self.find(id) else {\n            return (Release::Gone, changes);",
        "let Some(index) = self.find(id).or((self.held > 0).then_some(0)) else {\n            return (Release::Gone, changes);",
        MUTEX,
    ),
    mutant(
        "one more than fits",
        "line.rs",
        "<= u64::from(self.capacity)\n",
        "<= u64::from(self.capacity) + 1\n",
        MUTEX,
    ),
    mutant(
        "newcomers are let in past the line",
        "line.rs",
        "let fits = first && self.fits",
        "let fits = self.fits",
        SEMAPHORE,
    ),
    mutant(
        "fences start again on an idle name",
        "line.rs",
        "let fence = self.last.max(floor).saturating_add(1);",
        "let fence = self.last.saturating_add(u64::from(floor > 0));",
        MUTEX,
    ),
    mutant(
        "expired before the lease is over",
        "line.rs",
        "place.deadline <= at.now ||",
        "place.deadline.saturating_sub(1_000_000) <= at.now ||",
        MUTEX,
    ),
    mutant(
        "validity from the answer of the claim",
        "session/asking.rs",
        "entry.heard(sent);\n                entry.hold",
        "entry.heard(self.clock.now());\n                entry.hold",
        MUTEX,
    ),
    mutant(
        "validity from the answer of the heartbeat",
        "session/heartbeat.rs",
        "self.stands(claim, beat.sent, standing);",
        "self.stands(claim, self.clock.now(), standing);",
        MUTEX,
    ),
    mutant(
        "validity beyond the lease",
        "session/grant.rs",
        "sent.saturating_add(lease - margin)",
        "sent.saturating_add(lease + margin * 4)",
        MUTEX,
    ),
    mutant(
        "a lost push is not repaired",
        "session/heartbeat.rs",
        "self.settle(table, claim.id, Outcome::Granted(held));",
        "let _ = held;",
        MUTEX,
    ),
    mutant(
        "a heartbeat that finds nothing counts as a renewal",
        "session/heartbeat.rs",
        "self.settle(table, claim.id, Outcome::Ended(why));",
        "entry.heard(sent);\n                let _ = why;",
        MUTEX,
    ),
    mutant(
        "asks again under the same id",
        "session/asking.rs",
        "claim.id = ClaimId::random();",
        "",
        MUTEX,
    ),
    mutant(
        "a release misreads its answer",
        "session/keeper.rs",
        "if release == Release::Gone {\n                    grant.lose(Ended::Forgotten);\n                }\n                Ok(release)",
        "Ok(Release::Released)",
        MUTEX,
    ),
    mutant(
        "a grant serves two tasks at once",
        "turns/state.rs",
        "let free = self.users.is_empty() || (self.mode == Mode::Read);",
        "let free = true;",
        MUTEX,
    ),
    mutant(
        "every turn has the grant's fence",
        "session/grant.rs",
        "self.first.get() + u64::from(turn)",
        "self.first.get()",
        MUTEX,
    ),
    mutant(
        "the inner release ends the outer hold",
        "turns/state.rs",
        "user.depth += 1;",
        "",
        MANY,
    ),
    mutant(
        "anybody of the process re-enters",
        "turns/state.rs",
        "active.users.iter_mut().find(|user| user.who == ask.who)?",
        "active.users.iter_mut().next()?",
        MANY,
    ),
    mutant(
        "a line's file is locked for reading only",
        "engines/file/store.rs",
        "match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {",
        "match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {",
        FILE_BUSY,
    ),
    mutant(
        "a living session looks dead",
        "engines/file/alive.rs",
        "NonBlockingLockShared).is_err() {\n        return false;",
        "NonBlockingLockShared).is_err() {\n        return true;",
        FILE,
    ),
    mutant(
        "a removed file is locked",
        "engines/file/store.rs",
        "if found.st_nlink == 0 {",
        "if false {",
        FILE,
    ),
    mutant(
        "the guard ignores its deadline",
        "session/grant.rs",
        "if self.clock.now() >= self.until() {\n            self.lose",
        "if false {\n            self.lose",
        MUTEX,
    ),
    mutant(
        "one id for all claims",
        "claim.rs",
        "id: ClaimId::random(),\n            name,",
        "id: ClaimId::from_u128(7),\n            name,",
        MUTEX,
    ),
    mutant(
        "the fence is read in a second look",
        "line.rs",
        "Some(fence) => Standing::Held(self.held(fence)),",
        "Some(_) => Standing::Held(self.held(Fence::new(self.last))),",
        MUTEX,
    ),
    mutant(
        "a claim without expiry",
        "line.rs",
        "deadline: at.now.saturating_add(ask.lease),",
        "deadline: Micros::MAX,",
        MUTEX,
    ),
    mutant(
        "a release that goes on renewing",
        "session/keeper.rs",
        "let still = self.take_out(grant.claim.id);\n        if grant",
        "if grant.why_lost().is_none() {\n            return Ok(Release::Released);\n        }\n        let still = self.take_out(grant.claim.id);\n        if grant",
        MUTEX,
    ),
    mutant(
        "a cancelled wait keeps its place",
        "session/asking.rs",
        "self.keeper.reaper.give_back(claim.clone(), 0);\n            let _ = self.keeper.take_out(claim.id);",
        "let _ = claim;",
        MUTEX,
    ),
    mutant(
        "a dropped guard gives nothing back",
        "turns/turn.rs",
        "self.local.keeper().discard(&self.grant);",
        "",
        MUTEX,
    ),
    mutant(
        "a release that failed is forgotten",
        "session/keeper.rs",
        "keeper.reap(grant);\n        }\n    }\n}",
        "let _ = (keeper, grant);\n        }\n    }\n}",
        MUTEX,
    ),
    mutant(
        "a pushed grant is valid from its arrival",
        "session/table.rs",
        "let until = validity(self.said, self.claim.lease);",
        "let until = validity(clock.now(), self.claim.lease);",
        MUTEX,
    ),
    mutant(
        "a new fence for who re-enters",
        "turns/state.rs",
        "Some(Turn::new(local, &active.grant, user.fence))\n        })",
        "user.fence = active.grant.next_fence()?;\n            Some(Turn::new(local, &active.grant, user.fence))\n        })",
        MANY,
    ),
    mutant(
        "what is lost can be re-entered",
        "turns/state.rs",
        "if active.grant.state() == Validity::Lost {\n                return None;",
        "if false {\n                return None;",
        MANY,
    ),
    mutant(
        "readers pass a writer that waits",
        "line.rs",
        "let fits = first && self.fits",
        "let fits = (first || ask.mode.weight() == 1) && self.fits",
        READ_WRITE,
    ),
    mutant(
        "the line is in order of ids",
        "line.rs",
        "if fits {\n            self.grant_next(at);",
        "if !fits {\n            let held = self.held;\n            self.places.make_contiguous()[held..].sort_by_key(|place| place.id);\n        }\n        if fits {\n            self.grant_next(at);",
        MUTEX,
    ),
    mutant(
        "redis: a release compares nothing",
        "engines/redis/line.lua",
        "and find(line, id)\n  if not place then return { 'gone' } end",
        "and (find(line, id) or find(line, redis.call('ZRANGE', line.holders, 0, 0)[1] or ''))\n  if not place then return { 'gone' } end",
        "run plain-del",
    ),
    mutant(
        "redis: a heartbeat renews whoever holds",
        "engines/redis/line.lua",
        "  redis.call('ZADD', zset, 'GT', int(deadline), place.id)\n",
        "  redis.call('ZADD', zset, 'GT', int(deadline), place.id)\n  for _, id in ipairs(redis.call('ZRANGE', line.holders, 0, -1)) do redis.call('ZADD', line.holders, int(deadline), id) end\n",
        "run setnx",
    ),
    mutant(
        "redis: a grant without expiry",
        "engines/redis/line.lua",
        "local fence, deadline = now + 1, math.min(now + lease, TOP)",
        "local fence, deadline = now + 1, TOP",
        "run setnx-expire",
    ),
    mutant(
        "redis: fences from a counter alone",
        "engines/redis/line.lua",
        "local fence, deadline = now + 1, math.min(now + lease, TOP)",
        "local fence, deadline = 1, math.min(now + lease, TOP)",
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
        "redis: newcomers are let in past the line",
        "engines/redis/line.lua",
        "local fit = first and fits(line, place.weight)",
        "local fit = fits(line, place.weight)",
        REDIS,
    ),
    mutant(
        "sql: a claim without expiry",
        "engines/sql/quick.rs",
        "now, now + {lease}, {first}",
        "now, now + {lease} * 1000, {first}",
        "run lock-row",
    ),
    mutant(
        "sql: a release compares nothing",
        "engines/sql/quick.rs",
        "AND crowd = 0 AND id = {} AND deadline > {now}",
        "AND crowd = 0 AND (id = {} OR true) AND deadline > {now}",
        "run unlock-by-anyone",
    ),
    mutant(
        "zookeeper: everybody watches the first",
        "engines/zookeeper/rule.rs",
        "watch: nearest.name.clone(),",
        "watch: line.first().unwrap_or(nearest).name.clone(),",
        "run herd",
    ),
];
