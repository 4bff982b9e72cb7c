PRAGMA application_id = 1212564546;
PRAGMA user_version = 3;
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
INSERT INTO "migrations" VALUES(2,'reference_records',1760000000.0);
INSERT INTO "migrations" VALUES(3,'refused_configs',1760000000.0);
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
  created_at REAL NOT NULL, refused TEXT,
  PRIMARY KEY (problem, target, environment, solver_id)
) WITHOUT ROWID;
INSERT INTO "perf_records" VALUES(1,1,1,'GemmBwdRest',1,'64x64','0123456789abcdef',0.5,0.01,10,1024,1760000000.0,NULL);
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
);
INSERT INTO "reference_records" VALUES(1,1,'find','key',1,1,'value','GemmBwdRest',0.5);
CREATE TABLE reference_sources (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE CHECK (digest <> ''),
  name TEXT NOT NULL,
  imported_at REAL NOT NULL
);
INSERT INTO "reference_sources" VALUES(1,'0123','gfx942.fdb.txt',1760000000.0);
CREATE TABLE superseded (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  content TEXT NOT NULL UNIQUE,
  origin TEXT NOT NULL,
  replaced_at REAL NOT NULL
);
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
CREATE INDEX reference_records_by_problem ON reference_records (problem) WHERE problem IS NOT NULL;
CREATE INDEX reference_records_by_source ON reference_records (source);
CREATE VIEW results AS SELECT p.key AS problem, p.operation, p.direction, p.dtype, p.layout, p.n, p.c, p.k, p.groups, p.input, p.filter,
  p.output, p.stride, p.pad, p.dilation, p.miopen_key, t.key AS device, t.name AS device_name,
  e.fingerprint AS environment, r.solver_id AS solver, r.outcome, r.time_ms, r.spread_ms, r.samples,
  r.workspace_bytes, r.config, r.verified, r.detail, r.solver_version, r.source_hash, r.created_at
FROM find_records r JOIN problems p ON p.id = r.problem JOIN targets t ON t.id = r.target
  JOIN environments e ON e.id = r.environment;
CREATE VIEW reference_results AS SELECT r.miopen_key, p.key AS problem, p.operation, p.direction, p.dtype, p.layout, p.n, p.c, p.k, p.groups, p.input, p.filter,
  p.output, p.stride, p.pad, p.dilation, t.key AS device, r.form, r.best_solver AS solver,
  r.best_ms AS time_ms, r.value, s.name AS source, s.imported_at
FROM reference_records r JOIN targets t ON t.id = r.target JOIN reference_sources s ON s.id = r.source
  LEFT JOIN problems p ON p.id = r.problem;
CREATE VIEW tuned_configs AS SELECT p.key AS problem, p.operation, p.direction, p.dtype, p.layout, p.n, p.c, p.k, p.groups, p.input, p.filter,
  p.output, p.stride, p.pad, p.dilation, p.miopen_key, t.key AS device, t.name AS device_name,
  e.fingerprint AS environment, r.solver_id AS solver, r.config, r.time_ms, r.spread_ms, r.samples,
  r.workspace_bytes, r.refused, r.solver_version, r.source_hash, r.created_at
FROM perf_records r JOIN problems p ON p.id = r.problem JOIN targets t ON t.id = r.target
  JOIN environments e ON e.id = r.environment;
COMMIT;
