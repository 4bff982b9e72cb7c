"""Run one problem by every solver that applies to it, and compare the results."""

import numpy as np

import hipfind as hf

problem = hf.ConvProblem.create("fwd", x=(2, 8, 12, 12), w=(4, 8, 3, 3), stride=2, pad=1)
rng = np.random.default_rng(0)
x = rng.standard_normal(problem.x.lengths, dtype=np.float32)
w = rng.standard_normal(problem.w.lengths, dtype=np.float32)
expected = problem.reference({"x": x, "w": w})

for explanation in hf.explain(problem):
    if explanation.applicable:
        plan = hf.plan(problem, solver=explanation.solver_id)
        error = np.linalg.norm(plan(x, w) - expected) / np.linalg.norm(expected)
        print(f"{plan.solver_id}: relative error {error:.1e}, workspace {plan.workspace_bytes} bytes")
        assert error < 1e-5
