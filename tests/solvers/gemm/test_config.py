"""The perf config that all GEMM solvers share: the BLAS library's algorithm by rank."""

from __future__ import annotations

import pytest

from hipfind.errors import ConfigError
from hipfind.invokers.steps import GemmStep, flat
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm.base import MOST_RANKS, GemmConfig, GemmSolver
from hipfind.solvers.registry import default_registry
from hipfind.target import known
from tests.solvers.catalogue import conv_problems

GPU, HOST = known("gfx942"), known("x86_64")
GEMM_SOLVERS = [one for one in default_registry().solvers if isinstance(one, GemmSolver)]
PROBLEM = ConvProblem.create("bwd", x=(4, 3, 14, 14), w=(8, 3, 14, 14), stride=14, dtype="bf16")


@pytest.mark.parametrize("solver", GEMM_SOLVERS, ids=lambda solver: solver.solver_id)
def test_the_rank_reaches_every_product_and_nothing_else(solver: GemmSolver) -> None:
    problems = [one for one in conv_problems() if solver.IsApplicable(GPU, one)]
    assert problems
    for problem in problems:
        best = solver.GetSolution(GPU, problem)
        other = solver.GetSolution(GPU, problem, GemmConfig(3))
        assert (best.config, other.config) == ("rank=0", "rank=3")
        assert best.workspace_bytes == other.workspace_bytes and best.source_hash == other.source_hash
        for (count, step), (other_count, other_step) in zip(flat(best.steps), flat(other.steps), strict=True):
            assert count == other_count
            if isinstance(step, GemmStep) and isinstance(other_step, GemmStep):
                assert (step.gemm.rank, other_step.gemm.rank) == (0, 3)
                assert (step.a, step.b, step.c) == (other_step.a, other_step.b, other_step.c)
            else:
                assert step == other_step


@pytest.mark.parametrize(("compute", "tf32"), [("", False), ("tf32", True)])
def test_only_problems_that_allow_it_have_their_products_rounded_to_tf32(compute: str, tf32: bool) -> None:
    problem = ConvProblem.create("fwd", x=(2, 4, 6, 6), w=(8, 4, 3, 3), compute=compute)
    steps = default_registry().get("GemmFwdRest").GetSolution(GPU, problem).steps
    assert {step.gemm.tf32 for _, step in flat(steps) if isinstance(step, GemmStep)} == {tf32}


def test_the_host_has_one_algorithm_and_gpus_several() -> None:
    solver = default_registry().get("GemmBwdRest")
    assert isinstance(solver, GemmSolver)
    assert list(solver.Search(HOST, PROBLEM)) == [GemmConfig(0)]
    assert list(solver.Search(GPU, PROBLEM)) == [GemmConfig(rank) for rank in range(MOST_RANKS)]


@pytest.mark.parametrize(("target", "rank"), [(HOST, 1), (GPU, MOST_RANKS), (GPU, -1)])
def test_a_rank_out_of_range_is_refused_with_the_range(target, rank: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=rf"GemmBwdRest is not valid: .*rank {rank}, legal: 0 to \d+"):
        default_registry().get("GemmBwdRest").GetSolution(target, PROBLEM, GemmConfig(rank))


@pytest.mark.parametrize("text", ["", "3", "rank=", "rank=-1", "rank=1.0", "rank=00000000001", "tile=3", "rank=1\n"])
def test_text_that_is_no_config_is_refused(text: str) -> None:
    solver = default_registry().get("GemmBwdRest")
    assert isinstance(solver, GemmSolver)
    with pytest.raises(ConfigError, match="written rank=N"):
        solver.parse_config(text)
