"""Find with a perf DB of its own: the user's file is neither read nor written. Then read the file."""

import pathlib
import tempfile

import hipfind as hf
from hipfind import settings

problem = hf.ConvProblem.create("wrw", x=(4, 8, 10, 10), w=(16, 8, 3, 3))

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "trial.db")
    with settings.override(user_db_path=str(path)):
        report = hf.find(problem, mode="hybrid")
    assert report.stored and path.exists()
    with hf.PerfDb.open(path, read_only=True) as db:
        rows = db.read("SELECT solver_id, outcome, time_ms FROM find_records ORDER BY time_ms IS NULL, time_ms")
    for solver_id, outcome, time_ms in rows:
        print(f"{solver_id}: {outcome}, {time_ms if time_ms is None else round(time_ms, 3)} ms")
    assert report.best is not None and rows[0][0] in {choice.solver_id for choice in report.results}
