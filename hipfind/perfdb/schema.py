"""The tables of the perf DB, as the statements that make them.

Plain tables with CHECK constraints, not STRICT ones: a file in a home directory is shared by Pythons with old and new
sqlite libraries, and sqlite before 3.37 takes a file with a STRICT table for a damaged one. Everything here works
from sqlite 3.31 on.
"""

from __future__ import annotations

APPLICATION_ID = 0x48464442
""""HFDB": marks a file as a hipfind perf DB (PRAGMA application_id)."""

MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  applied_at REAL NOT NULL
)"""

_PROBLEMS = """
CREATE TABLE problems (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE CHECK (key <> ''),
  operation TEXT NOT NULL,
  direction TEXT NOT NULL,
  dtype TEXT NOT NULL,
  layout TEXT NOT NULL,
  n INTEGER,
  c INTEGER,
  k INTEGER,
  groups INTEGER,
  input TEXT,
  filter TEXT,
  output TEXT,
  stride TEXT,
  pad TEXT,
  dilation TEXT,
  miopen_key TEXT
)"""

_PROBLEMS_BY_MIOPEN_KEY = "CREATE INDEX problems_by_miopen_key ON problems (miopen_key) WHERE miopen_key IS NOT NULL"

_TARGETS = """
CREATE TABLE targets (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE CHECK (key <> ''),
  vendor TEXT NOT NULL,
  arch TEXT NOT NULL,
  compute_units INTEGER NOT NULL,
  name TEXT NOT NULL
)"""

_ENVIRONMENTS = """
CREATE TABLE environments (
  id INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL UNIQUE CHECK (fingerprint <> ''),
  facts TEXT NOT NULL,
  first_seen REAL NOT NULL
)"""

_OWNER = """
  problem INTEGER NOT NULL REFERENCES problems (id) ON DELETE CASCADE,
  target INTEGER NOT NULL REFERENCES targets (id) ON DELETE CASCADE,
  environment INTEGER NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
  solver_id TEXT NOT NULL CHECK (solver_id <> ''),
  solver_version INTEGER NOT NULL CHECK (typeof(solver_version) = 'integer' AND solver_version >= 0),
  config TEXT NOT NULL,
  source_hash TEXT NOT NULL,"""

_TIMES = """
  spread_ms REAL NOT NULL CHECK (typeof(spread_ms) = 'real' AND spread_ms >= 0 AND spread_ms < 9e999),
  samples INTEGER NOT NULL CHECK (typeof(samples) = 'integer' AND samples >= 0),
  workspace_bytes INTEGER NOT NULL CHECK (typeof(workspace_bytes) = 'integer' AND workspace_bytes >= 0),"""

_FIND_RECORDS = f"""
CREATE TABLE find_records ({_OWNER}
  time_ms REAL CHECK (time_ms IS NULL OR (typeof(time_ms) = 'real' AND time_ms >= 0 AND time_ms < 9e999)),{_TIMES}
  outcome TEXT NOT NULL CHECK (outcome <> ''),
  detail TEXT NOT NULL,
  verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
  created_at REAL NOT NULL,
  PRIMARY KEY (problem, target, environment, solver_id)
) WITHOUT ROWID"""

_PERF_RECORDS = f"""
CREATE TABLE perf_records ({_OWNER}
  time_ms REAL NOT NULL CHECK (typeof(time_ms) = 'real' AND time_ms >= 0 AND time_ms < 9e999),{_TIMES}
  created_at REAL NOT NULL,
  PRIMARY KEY (problem, target, environment, solver_id)
) WITHOUT ROWID"""

FIRST_TABLES = (_PROBLEMS, _PROBLEMS_BY_MIOPEN_KEY, _TARGETS, _ENVIRONMENTS, _FIND_RECORDS, _PERF_RECORDS)
"""One row a problem; a point look-up by (problem, target) is a range of the record tables' primary key."""
