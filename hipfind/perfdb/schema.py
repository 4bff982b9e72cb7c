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

_REFERENCE_SOURCES = """
CREATE TABLE reference_sources (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE CHECK (digest <> ''),
  name TEXT NOT NULL,
  imported_at REAL NOT NULL
)"""

_REFERENCE_RECORDS = """
CREATE TABLE reference_records (
  id INTEGER PRIMARY KEY,
  target INTEGER NOT NULL REFERENCES targets (id) ON DELETE CASCADE,
  form TEXT NOT NULL CHECK (form IN ('find', 'perf')),
  miopen_key TEXT NOT NULL CHECK (miopen_key <> ''),
  problem INTEGER REFERENCES problems (id) ON DELETE SET NULL,
  source INTEGER NOT NULL REFERENCES reference_sources (id) ON DELETE CASCADE,
  value TEXT NOT NULL,
  best_solver TEXT,
  best_ms REAL,
  UNIQUE (target, form, miopen_key)
)"""

_REFERENCE_BY_PROBLEM = (
    "CREATE INDEX reference_records_by_problem ON reference_records (problem) WHERE problem IS NOT NULL"
)
_REFERENCE_BY_SOURCE = "CREATE INDEX reference_records_by_source ON reference_records (source)"

_SUPERSEDED = """
CREATE TABLE superseded (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  content TEXT NOT NULL UNIQUE,
  origin TEXT NOT NULL,
  replaced_at REAL NOT NULL
)"""

_SHAPE = """p.key AS problem, p.operation, p.direction, p.dtype, p.layout, p.n, p.c, p.k, p.groups, p.input, p.filter,
  p.output, p.stride, p.pad, p.dilation"""

_RESULTS = f"""
CREATE VIEW results AS SELECT {_SHAPE}, p.miopen_key, t.key AS device, t.name AS device_name,
  e.fingerprint AS environment, r.solver_id AS solver, r.outcome, r.time_ms, r.spread_ms, r.samples,
  r.workspace_bytes, r.config, r.verified, r.detail, r.solver_version, r.source_hash, r.created_at
FROM find_records r JOIN problems p ON p.id = r.problem JOIN targets t ON t.id = r.target
  JOIN environments e ON e.id = r.environment"""

_REFERENCE_RESULTS = f"""
CREATE VIEW reference_results AS SELECT r.miopen_key, {_SHAPE}, t.key AS device, r.form, r.best_solver AS solver,
  r.best_ms AS time_ms, r.value, s.name AS source, s.imported_at
FROM reference_records r JOIN targets t ON t.id = r.target JOIN reference_sources s ON s.id = r.source
  LEFT JOIN problems p ON p.id = r.problem"""

REFERENCE_TABLES = (
    _REFERENCE_SOURCES, _REFERENCE_RECORDS, _REFERENCE_BY_PROBLEM, _REFERENCE_BY_SOURCE, _SUPERSEDED, _RESULTS,
    _REFERENCE_RESULTS,
)  # fmt: skip
"""Records of MIOpen's own files, apart from our timings; what a merge replaced; views for people and browsers.

``reference_records.value`` is the record as MIOpen wrote it, so that an export gives the same bytes; ``miopen_key`` is
MIOpen's key, which can hold a layout hint that ours does not have; ``problem`` is NULL where MIOpen's key is of no
problem that hipfind has.
"""

_REFUSED = "ALTER TABLE perf_records ADD COLUMN refused TEXT"

_TUNED_CONFIGS = f"""
CREATE VIEW tuned_configs AS SELECT {_SHAPE}, p.miopen_key, t.key AS device, t.name AS device_name,
  e.fingerprint AS environment, r.solver_id AS solver, r.config, r.time_ms, r.spread_ms, r.samples,
  r.workspace_bytes, r.refused, r.solver_version, r.source_hash, r.created_at
FROM perf_records r JOIN problems p ON p.id = r.problem JOIN targets t ON t.id = r.target
  JOIN environments e ON e.id = r.environment"""

REFUSED_CONFIGS = (_REFUSED, _TUNED_CONFIGS)
"""``perf_records.refused`` is the rule that a config was found to break, NULL for one that is good."""
