PRAGMA application_id = 1212564546;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE environments (
  id INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL UNIQUE CHECK (fingerprint <> ''),
  facts TEXT NOT NULL,
  first_seen REAL NOT NULL
);
INSERT INTO "environments" VALUES(1,'c2fde2ccb48082cd','{"blas": "4.3", "driver": "6.2"}',1760000000.0);
CREATE TABLE find_records (
  problem INTEGER NOT NULL REFERENCES problems (id) ON DELETE CASCADE,
  target INTEGER NOT NULL REFERENCES targets (id) ON DELETE CASCADE,
  environment INTEGER NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
  solver_id TEXT NOT NULL CHECK (solver_id <> ''),
  solver_version INTEGER NOT NULL CHECK (typeof(solver_version) = 'integer' AND solver_version >= 0),
  config TEXT NOT NULL,
  source_hash TEXT NOT NULL,
  time_ms REAL CHECK (time_ms IS NULL OR (typeof(time_ms) = 'real' AND time_ms >= 0 AND time_ms < 9e999)),
  spread_ms REAL NOT NULL CHECK (typeof(spread_ms) = 'real' AND spread_ms >= 0 AND spread_ms < 9e999),
  samples INTEGER NOT NULL CHECK (typeof(samples) = 'integer' AND samples >= 0),
  workspace_bytes INTEGER NOT NULL CHECK (typeof(workspace_bytes) = 'integer' AND workspace_bytes >= 0),
  outcome TEXT NOT NULL CHECK (outcome <> ''),
  detail TEXT NOT NULL,
  verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
  created_at REAL NOT NULL,
  PRIMARY KEY (problem, target, environment, solver_id)
) WITHOUT ROWID;
INSERT INTO "find_records" VALUES(1,1,1,'Old',1,'','0123456789abcdef',1.0,0.01,10,1024,'won','',1,1760000000.0);
CREATE TABLE migrations (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  applied_at REAL NOT NULL
);
INSERT INTO "migrations" VALUES(1,'find_and_perf_records',1760000000.0);
CREATE TABLE perf_records (
  problem INTEGER NOT NULL REFERENCES problems (id) ON DELETE CASCADE,
  target INTEGER NOT NULL REFERENCES targets (id) ON DELETE CASCADE,
  environment INTEGER NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
  solver_id TEXT NOT NULL CHECK (solver_id <> ''),
  solver_version INTEGER NOT NULL CHECK (typeof(solver_version) = 'integer' AND solver_version >= 0),
  config TEXT NOT NULL,
  source_hash TEXT NOT NULL,
  time_ms REAL NOT NULL CHECK (typeof(time_ms) = 'real' AND time_ms >= 0 AND time_ms < 9e999),
  spread_ms REAL NOT NULL CHECK (typeof(spread_ms) = 'real' AND spread_ms >= 0 AND spread_ms < 9e999),
  samples INTEGER NOT NULL CHECK (typeof(samples) = 'integer' AND samples >= 0),
  workspace_bytes INTEGER NOT NULL CHECK (typeof(workspace_bytes) = 'integer' AND workspace_bytes >= 0),
  created_at REAL NOT NULL,
  PRIMARY KEY (problem, target, environment, solver_id)
) WITHOUT ROWID;
INSERT INTO "perf_records" VALUES(1,1,1,'GemmBwdRest',1,'64x64','0123456789abcdef',0.5,0.01,10,1024,1760000000.0);
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
);
INSERT INTO "problems" VALUES(1,'old','fake','fwd','fp32_fp16','NCHW',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE targets (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE CHECK (key <> ''),
  vendor TEXT NOT NULL,
  arch TEXT NOT NULL,
  compute_units INTEGER NOT NULL,
  name TEXT NOT NULL
);
INSERT INTO "targets" VALUES(1,'amd:gfx942:304','amd','gfx942',304,'AMD Instinct MI300X');
CREATE INDEX problems_by_miopen_key ON problems (miopen_key) WHERE miopen_key IS NOT NULL;
COMMIT;
