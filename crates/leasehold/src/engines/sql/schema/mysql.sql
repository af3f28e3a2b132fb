-- Leasehold's tables for MariaDB and MySQL. Times are microseconds; ids, sessions and keys are 16 bytes.
-- One row per name. A claim that is alone in its line is kept here; a crowd is kept in {prefix}claim.
-- Locked before anything else of the line is looked at: no deadlocks.
CREATE TABLE IF NOT EXISTS {prefix}line (
  k BINARY(16) PRIMARY KEY,      -- the first 16 bytes of SHA-256(name)
  name VARBINARY(512) NOT NULL,
  capacity BIGINT NOT NULL,
  last BIGINT NOT NULL,          -- the largest fence spent; the block of a claim that is alone comes on top
  id BINARY(16) NOT NULL,        -- of the claim that is alone; all 00: idle; all ff: a crowd
  session BINARY(16) NOT NULL,
  weight BIGINT NOT NULL,        -- of a crowd: how many claims it has
  lease BIGINT NOT NULL,
  since BIGINT NOT NULL,         -- when the claim joined; of an idle name: when it was last used; of a crowd: a version
  deadline BIGINT NOT NULL,      -- of a crowd: no claim ends before
  fence BIGINT NOT NULL          -- 0: it waits; of a crowd: the largest place
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {prefix}claim (
  k BINARY(16) NOT NULL,
  place BIGINT NOT NULL,         -- the order of arrival
  id BINARY(16) NOT NULL,
  session BINARY(16) NOT NULL,
  weight BIGINT NOT NULL,
  lease BIGINT NOT NULL,
  since BIGINT NOT NULL,
  deadline BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  PRIMARY KEY (k, place)
) ENGINE = InnoDB;
-- Who is who, for people.
CREATE TABLE IF NOT EXISTS {prefix}session (
  id BINARY(16) PRIMARY KEY,
  host VARBINARY(2048) NOT NULL,
  pid BIGINT NOT NULL,
  command VARBINARY(2048) NOT NULL,
  seen BIGINT NOT NULL
) ENGINE = InnoDB;
-- What happened to the claims of processes that look for it themselves.
CREATE TABLE IF NOT EXISTS {prefix}mail (
  address VARBINARY(16) NOT NULL,
  id BIGINT AUTO_INCREMENT,
  body VARBINARY(2048) NOT NULL,
  until BIGINT NOT NULL,
  PRIMARY KEY (address, id),
  KEY (id)
) ENGINE = InnoDB;
-- Who took which lock away, when and why.
CREATE TABLE IF NOT EXISTS {prefix}eviction (
  id BIGINT AUTO_INCREMENT PRIMARY KEY,
  at BIGINT NOT NULL,
  name VARBINARY(512) NOT NULL,
  fence BIGINT NOT NULL,
  who VARBINARY(2048) NOT NULL,
  why VARBINARY(2048) NOT NULL
) ENGINE = InnoDB;
-- Values that kinds of locks keep, each guarded by the fence of the lock of its name.
CREATE TABLE IF NOT EXISTS {prefix}store (
  k BINARY(16) PRIMARY KEY,      -- the first 16 bytes of SHA-256(name)
  name VARBINARY(512) NOT NULL,
  fence BIGINT NOT NULL,         -- the largest that was shown: a smaller one writes nothing
  value MEDIUMBLOB,              -- NULL: there is none
  written BIGINT NOT NULL,
  ends BIGINT NOT NULL,          -- of the value, by the wall clock
  gone BIGINT NOT NULL           -- when the fence may be forgotten, too
) ENGINE = InnoDB;
-- Last: where its row is, all the other tables are.
CREATE TABLE IF NOT EXISTS {prefix}meta (
  only_row BIGINT PRIMARY KEY,
  version BIGINT NOT NULL,       -- of these tables
  floor BIGINT NOT NULL,         -- new names start above it: the largest fence of a name that was cleaned away
  floor_at BIGINT NOT NULL,      -- when it was last raised
  boot VARCHAR(64) NOT NULL      -- used by SQLite alone
) ENGINE = InnoDB;
INSERT IGNORE INTO {prefix}meta VALUES (1, {version}, 0, 0, '');
