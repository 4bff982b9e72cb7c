from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

from hipfind.errors import HipfindError, UnknownSolverError
from hipfind.invokers.solution import Solution
from hipfind.solvers import registry
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import APPLICABLE, Applicability
from hipfind.target import Target


class Plain(Solver[Any]):
    __slots__ = ()

    solver_id = "ThirdPartyPlain"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: Any) -> Applicability:
        return APPLICABLE

    def GetSolution(self, target: Target, problem: Any, config: Any = None) -> Solution:
        return self.solution(target, problem, ())


@pytest.fixture(autouse=True)
def _own_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_extensions", registry._Extensions())


def test_the_default_registry_lists_every_built_in_solver_once_fallbacks_last() -> None:
    ids = [solver.SolverDbId() for solver in registry.default_registry().solvers]
    assert ids == [solver.solver_id for solver in (*registry.PREFERRED, *registry.FALLBACK)]
    assert len(set(ids)) == len(ids)
    naive = ["ConvDirectNaiveConvFwd", "ConvDirectNaiveConvBwd", "ConvDirectNaiveConvWrw"]
    assert ids[-5:] == [*naive, "UpsampleFwdDirect", "UpsampleBwdGather"]


def test_the_default_registry_is_made_once() -> None:
    assert registry.default_registry() is registry.default_registry()


def test_a_registered_solver_stands_before_the_fallbacks() -> None:
    before = registry.default_registry()
    assert registry.register(Plain) is Plain
    after = registry.default_registry()
    assert Plain.solver_id not in before
    assert after.get(Plain.solver_id).SolverDbId() == "ThirdPartyPlain"
    assert after.order("GemmWrwUniversal") < after.order("ThirdPartyPlain") < after.order("ConvDirectNaiveConvFwd")


def test_registering_a_class_twice_changes_nothing() -> None:
    registry.register(Plain)
    registry.register(Plain)
    assert [solver.solver_id for solver in registry.default_registry().solvers].count(Plain.solver_id) == 1


def test_order_and_get_name_the_closest_ids_for_an_unknown_one() -> None:
    for look_up in (registry.default_registry().get, registry.default_registry().order):
        with pytest.raises(UnknownSolverError, match="GemmFwdRest"):
            look_up("GemmFwdRset")
    with pytest.raises(UnknownSolverError, match="hipfind solvers"):
        registry.default_registry().get("@@@@")


def test_a_registry_refuses_two_solvers_with_one_id() -> None:
    with pytest.raises(HipfindError, match=r"unique .*ThirdPartyPlain"):
        registry.Registry([Plain(), Plain()])


class Taken(Plain):
    __slots__ = ()
    solver_id = "GemmFwdRest"


class WithState(Plain):
    solver_id = "WithState"


class WithSlot(Plain):
    __slots__ = ("cache",)
    solver_id = "WithSlot"


class Abstract(Solver[Any]):
    __slots__ = ()
    solver_id = "Abstract"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: Any) -> Applicability:
        return APPLICABLE


class NoId(Solver[Any]):
    __slots__ = ()
    algorithm = "Direct"
    IsApplicable = Plain.IsApplicable
    GetSolution = Plain.GetSolution


class NumberId(NoId):
    __slots__ = ()
    solver_id = 91  # type: ignore[assignment]


class EmptyId(NoId):
    __slots__ = ()
    solver_id = ""


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Taken, r"id of solver Taken is taken by hipfind.solvers.gemm.fwd_rest.GemmFwdRest"),
        (WithState, "WithState must be stateless"),
        (WithSlot, "WithSlot must be stateless"),
        (Abstract, "Abstract must implement every abstract method .*GetSolution"),
        (NoId, "solver_id of solver NoId must be a string"),
        (NumberId, "solver_id of solver NumberId must be a string .*91"),
        (EmptyId, "solver_id of solver EmptyId must be a string"),
        (Plain(), "must be a subclass"),
        (int, "must be a subclass"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_register_refuses_what_is_not_a_proper_solver(candidate: Any, message: str) -> None:
    with pytest.raises(HipfindError, match=message):
        registry.register(candidate)
    assert len(registry.default_registry().solvers) == len(registry.PREFERRED) + len(registry.FALLBACK)


def _install(folder: pathlib.Path, entry_points: str, **modules: str) -> None:
    """A distribution with entry points in the solvers' group, as pip would leave it."""
    info = folder / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{entry_points}")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)


_MODULE = f"""
from {__name__} import Plain

class FromEntryPoint(Plain):
    __slots__ = ()
    solver_id = "{{id}}"
"""


def test_entry_points_give_solver_classes_and_modules_that_register(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(
        tmp_path,
        "one = hf_solver_class:FromEntryPoint\ntwo = hf_solver_module\n",
        hf_solver_class=_MODULE.format(id="EntryPointClass"),
        hf_solver_module="from hipfind.solvers.registry import register\n"
        + _MODULE.format(id="EntryPointModule")
        + "\nregister(FromEntryPoint)\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("hf_solver_class", "hf_solver_module"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    found = registry.default_registry()
    assert "EntryPointClass" in found
    assert "EntryPointModule" in found


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("hf_no_such_module:Solver", ""),
        ("hf_broken:NoSuchName", ""),
        ("hf_broken:Solver", "raise RuntimeError('no licence')"),
        ("hf_broken:Solver", "1 / 0"),
        ("hf_broken:Solver", "class Solver: pass"),
        ("hf_broken", "this is not Python"),
    ],
)
def test_a_broken_entry_point_is_one_warning_that_names_it(
    target: str, source: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, f"broken_one = {target}\n", hf_broken=source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hf_broken", raising=False)
    with pytest.warns(RuntimeWarning, match="broken_one") as caught:
        found = registry.default_registry()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(found.solvers) == len(registry.PREFERRED) + len(registry.FALLBACK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.default_registry() is found


def test_threads_get_one_registry_and_lose_no_solver() -> None:
    classes = [type(f"T{i}", (Plain,), {"__slots__": (), "solver_id": f"Threaded{i}"}) for i in range(16)]
    barrier = threading.Barrier(16)
    seen = []

    def work(one: type[Plain]) -> None:
        barrier.wait()
        registry.register(one)
        seen.append(registry.default_registry())

    threads = [threading.Thread(target=work, args=(one,)) for one in classes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 16
    last = registry.default_registry()
    assert all(one.solver_id in last for one in classes)
    assert registry.default_registry() is last


def test_third_parties_can_register_before_anything_else_is_imported() -> None:
    code = (
        "from hipfind.solvers.registry import register, default_registry\n"
        "from hipfind.solvers.gemm.fwd_rest import GemmFwdRest\n"
        "@register\n"
        "class Mine(GemmFwdRest):\n"
        "    __slots__ = ()\n"
        "    solver_id = 'Mine'\n"
        "assert 'Mine' in default_registry()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
