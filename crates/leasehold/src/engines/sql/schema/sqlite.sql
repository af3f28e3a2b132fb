-- Leasehold's tables for SQLite. Times are microseconds; ids, sessions and keys are 16 bytes.
-- One row per name. A claim that is alone in its line is kept here; a crowd is kept in {prefix}claim.
-- Locked before anything else of the line is looked at: no deadlocks.
CREATE TABLE IF NOT EXISTS {prefix}line (
  k BLOB PRIMARY KEY,            -- the first 16 bytes of SHA-256(name)
  name BLOB NOT NULL,
  capacity INTEGER NOT NULL,
  last INTEGER NOT NULL,         -- the largest fence spent; the block of a claim that is alone comes on top
  id BLOB NOT NULL,              -- of the claim that is alone; all 00: idle; all ff: a crowd
  session BLOB NOT NULL,
  weight INTEGER NOT NULL,       -- of a crowd: how many claims it has
  lease INTEGER NOT NULL,
  since INTEGER NOT NULL,        -- when the claim joined; of an idle name: when it was last used; of a crowd: a version
  deadline INTEGER NOT NULL,     -- of a crowd: no claim ends before
  fence INTEGER NOT NULL         -- 0: it waits; of a crowd: the largest place
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {prefix}claim (
  k BLOB NOT NULL,
  place INTEGER NOT NULL,        -- the order of arrival
  id BLOB NOT NULL,
  session BLOB NOT NULL,
  weight INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  since INTEGER NOT NULL,
  deadline INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  PRIMARY KEY (k, place)
) WITHOUT ROWID;
-- Who is who, for people.
CREATE TABLE IF NOT EXISTS {prefix}session (
  id BLOB PRIMARY KEY,
  host BLOB NOT NULL,
  pid INTEGER NOT NULL,
  command BLOB NOT NULL,
  seen INTEGER NOT NULL
);
-- What happened to the claims of processes that look for it themselves.
CREATE TABLE IF NOT EXISTS {prefix}mail (
  address BLOB NOT NULL,
  id INTEGER PRIMARY KEY,
  body BLOB NOT NULL,
  until INTEGER NOT NULL
);
-- Who took which lock away, when and why.
CREATE TABLE IF NOT EXISTS {prefix}eviction (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  name BLOB NOT NULL,
  fence INTEGER NOT NULL,
  who BLOB NOT NULL,
  why BLOB NOT NULL
);
-- Values that kinds of locks keep, each guarded by the fence of the lock of its name.
CREATE TABLE IF NOT EXISTS {prefix}store (
  k BLOB PRIMARY KEY,            -- the first 16 bytes of SHA-256(name)
  name BLOB NOT NULL,
  fence INTEGER NOT NULL,        -- the largest that was shown: a smaller one writes nothing
  value BLOB,                    -- NULL: there is none
  written INTEGER NOT NULL,
  ends INTEGER NOT NULL,         -- of the value, by the wall clock
  gone INTEGER NOT NULL          -- when the fence may be forgotten, too
);
-- Last: where its row is, all the other tables are.
CREATE TABLE IF NOT EXISTS {prefix}meta (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  version INTEGER NOT NULL,      -- of these tables
  floor INTEGER NOT NULL,        -- new names start above it: the largest fence of a name that was cleaned away
  floor_at INTEGER NOT NULL,     -- when it was last raised
  boot TEXT NOT NULL             -- the boot of the machine that the times belong to
);
INSERT INTO {prefix}meta VALUES (1, {version}, 0, 0, '') ON CONFLICT (only_row) DO NOTHING;
