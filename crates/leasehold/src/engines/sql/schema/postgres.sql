-- Leasehold's tables for PostgreSQL. Times are microseconds; ids, sessions and keys are 16 bytes.
-- One row per name. A claim that is alone in its line is kept here; a crowd is kept in {prefix}claim.
-- Locked before anything else of the line is looked at: no deadlocks.
CREATE TABLE IF NOT EXISTS {prefix}line (
  k BYTEA PRIMARY KEY,           -- the first 16 bytes of SHA-256(name)
  name BYTEA NOT NULL,
  capacity BIGINT NOT NULL,
  last BIGINT NOT NULL,          -- the largest fence spent; the block of a claim that is alone comes on top
  id BYTEA NOT NULL,             -- of the claim that is alone; all 00: idle; all ff: a crowd
  session BYTEA NOT NULL,
  weight BIGINT NOT NULL,        -- of a crowd: how many claims it has
  lease BIGINT NOT NULL,
  since BIGINT NOT NULL,         -- when the claim joined; of an idle name: when it was last used; of a crowd: a version
  deadline BIGINT NOT NULL,      -- of a crowd: no claim ends before
  fence BIGINT NOT NULL          -- 0: it waits; of a crowd: the largest place
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE IF NOT EXISTS {prefix}claim (
  k BYTEA NOT NULL,
  place BIGINT NOT NULL,         -- the order of arrival
  id BYTEA NOT NULL,
  session BYTEA NOT NULL,
  weight BIGINT NOT NULL,
  lease BIGINT NOT NULL,
  since BIGINT NOT NULL,
  deadline BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  PRIMARY KEY (k, place)
);
-- Who is who, for people.
CREATE TABLE IF NOT EXISTS {prefix}session (
  id BYTEA PRIMARY KEY,
  host BYTEA NOT NULL,
  pid BIGINT NOT NULL,
  command BYTEA NOT NULL,
  seen BIGINT NOT NULL
);
-- What happened to the claims of processes that look for it themselves.
CREATE TABLE IF NOT EXISTS {prefix}mail (
  address BYTEA NOT NULL,
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  body BYTEA NOT NULL,
  until BIGINT NOT NULL,
  PRIMARY KEY (address, id)
);
-- Who took which lock away, when and why.
CREATE TABLE IF NOT EXISTS {prefix}eviction (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at BIGINT NOT NULL,
  name BYTEA NOT NULL,
  fence BIGINT NOT NULL,
  who BYTEA NOT NULL,
  why BYTEA NOT NULL
);
-- Values that kinds of locks keep, each guarded by the fence of the lock of its name.
CREATE TABLE IF NOT EXISTS {prefix}store (
  k BYTEA PRIMARY KEY,           -- the first 16 bytes of SHA-256(name)
  name BYTEA NOT NULL,
  fence BIGINT NOT NULL,         -- the largest that was shown: a smaller one writes nothing
  value BYTEA,                   -- NULL: there is none
  written BIGINT NOT NULL,
  ends BIGINT NOT NULL,          -- of the value, by the wall clock
  gone BIGINT NOT NULL           -- when the fence may be forgotten, too
);
-- Last: where its row is, all the other tables are.
CREATE TABLE IF NOT EXISTS {prefix}meta (
  only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
  version BIGINT NOT NULL,       -- of these tables
  floor BIGINT NOT NULL,         -- new names start above it: the largest fence of a name that was cleaned away
  floor_at BIGINT NOT NULL,      -- when it was last raised
  boot TEXT NOT NULL             -- used by SQLite alone
);
INSERT INTO {prefix}meta VALUES (1, {version}, 0, 0, '') ON CONFLICT (only_row) DO NOTHING;
