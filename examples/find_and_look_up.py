"""Measure once, look up ever after: Find, then immediate mode, then a plan that runs the winner."""

import numpy as np

import hipfind as hf

problem = hf.ConvProblem.create("bwd", x=(8, 16, 28, 28), w=(32, 16, 3, 3), pad=1)

print("before, by estimate:")
for choice in hf.immediate(problem):
    print(f"  {choice.solver_id}: {choice.time_ms:.3f} ms ({choice.source.value})")

report = hf.find(problem)
assert report.best is not None
print(f"found: {report.best.solver_id}, {report.best.time_ms:.3f} ms ({report.source.value})")
for candidate in report.candidates:
    print(f"  {candidate.solver_id}: {candidate.outcome.value} {candidate.reason}")

again = hf.find(problem)
first = hf.immediate(problem)[0]
print(f"again: {again.source.value}; immediate mode says {first.solver_id} ({first.source.value})")
assert first.solver_id == report.best.solver_id

plan = hf.plan(problem)
dy, w = np.ones((8, 32, 28, 28), np.float32), np.ones((32, 16, 3, 3), np.float32)
dx = plan(dy, w)
print(f"{plan.solver_id} gives dx of shape {dx.shape}, dx[0, 0, 0, 0] = {dx[0, 0, 0, 0]}")
assert dx[0, 0, 5, 5] == 32 * 9
