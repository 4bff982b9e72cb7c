"""hipfind tune: lists of problems on a fake device with a fake clock, resumed, interrupted, compiled only."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hipfind import settings
from hipfind.cli import tune as tune_command
from hipfind.cli.main import main
from hipfind.cli.progress import TimeLeft
from hipfind.find.engine import find
from hipfind.find.report import OnProgress, Progress
from hipfind.find.session import Session
from hipfind.perfdb.guard import GuardedDb
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.registry import Registry
from tests.cli.conftest import SMALL, Cli, rows_in
from tests.helpers.fakes import Behaviour, FakeDevice, FakeTimer, fake_solver
from tests.helpers.tunable import fake_tunable

LENGTHS: dict[str, Any] = {"x": (2, 3, 5, 6), "w": (4, 3, 3, 2), "stride": (1, 2)}
PROBLEMS = [ConvProblem.create("fwd", **LENGTHS, **more) for more in ({}, {"deterministic": True}, {"compute": "tf32"})]
"""Problems of the same tensors: the fake device computes them all."""
TIMES = {16: 3.0, 32: 2.5, 64: 1.0, 128: 1.5}


class Machine:
    """A fake device, and the solvers of the hipfind that is installed on it; each session is a new process's."""

    def __init__(self) -> None:
        self.version = 1
        self.tiles = tuple(TIMES)
        self.behaviours = {f"Tuned.tile={tile}": Behaviour((time,)) for tile, time in TIMES.items()}
        self.behaviours |= {f"Other.tile={tile}": Behaviour((time + 3,)) for tile, time in TIMES.items()}
        self.behaviours["Plain"] = Behaviour((2.0,))
        self.facts = {"driver": "1"}

    def session(self, device: str | None = None) -> Session:
        fake = FakeDevice(PROBLEMS[0], self.behaviours)
        fake.facts = dict(self.facts)
        tuned = fake_tunable("Tuned", self.tiles, version=self.version)
        solvers = [tuned, fake_tunable("Other", tuple(TIMES)), fake_solver("Plain")]
        return Session(fake, GuardedDb(), Registry(solvers), FakeTimer(fake))

    @property
    def launches(self) -> int:
        return sum(one.launches for one in self.behaviours.values())

    def tried(self, solver: str) -> int:
        """Configs of a solver that ran since the last ``reset``."""
        return sum(one.launches > 0 for name, one in self.behaviours.items() if name.startswith(f"{solver}."))

    def reset(self) -> None:
        for one in self.behaviours.values():
            one.launches = 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(tune_command, "session_for", machine.session)
    return machine


@pytest.fixture
def listed(tmp_path: Path) -> str:
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{one.key()}\n" for one in PROBLEMS))
    return str(path)


def states(result: Result) -> list[str]:
    return [one["state"] for one in json.loads(result.stdout)["problems"]]


def configs(path: Path) -> dict[str, list[str]]:
    """Tuned configs in the DB by solver."""
    found: dict[str, list[str]] = {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for solver, config in connection.execute("SELECT solver_id, config FROM perf_records"):
            found.setdefault(solver, []).append(config)
    return found


def test_each_problem_is_tuned_stored_and_told(cli: Cli, machine: Machine, listed: str, db_path: Path) -> None:
    result = cli("tune", listed)
    assert (result.exit_code, result.stderr) == (0, "")
    *lines, sums = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[f"{n}/3", one.key()] for n, one in enumerate(PROBLEMS, 1)]
    what = "Tuned tile=64, 1.000 ms (default config 3.000 ms); 8 configs tried"
    assert all(line.endswith(what) for line in lines)
    assert sums == "3 problems on fake: 3 tuned"
    assert configs(db_path) == {"Tuned": ["tile=64"] * 3, "Other": ["tile=64"] * 3}
    with settings.override(user_db_path=str(db_path)):
        assert find(PROBLEMS[1], machine.session()).results[0].config == "tile=64"


def test_what_is_tuned_is_passed_over_unless_asked_again(cli: Cli, machine: Machine, listed: str) -> None:
    cli("tune", listed)
    machine.reset()
    result = cli("tune", listed)
    assert (result.exit_code, machine.launches) == (0, 0)
    assert result.stdout.count("already tuned: Tuned tile=64, 1.000 ms") == 3
    assert states(cli("tune", listed, "--again", "--json")) == ["tuned"] * 3
    assert machine.tried("Tuned") == machine.tried("Other") == 4


@pytest.mark.parametrize("what", ["a Find without tuning", "solver version", "environment", "refused config"])
def test_records_that_do_not_count_are_tuned_anew(
    cli: Cli, machine: Machine, listed: str, db_path: Path, what: str
) -> None:
    if what == "a Find without tuning":
        with settings.override(user_db_path=str(db_path)):
            find(PROBLEMS[0], machine.session())
    else:
        cli("tune", listed)
    if what == "solver version":
        machine.version = 2
    if what == "environment":
        machine.facts = {"driver": "2"}
    if what == "refused config":
        machine.tiles = (16, 32, 128)
    assert states(cli("tune", listed, "--json"))[0] == "tuned"


def interrupting(problem: int, done: int) -> Callable[..., contextlib.AbstractContextManager[OnProgress]]:
    """In place of find_progress: Ctrl-C before a config of a problem's first search."""
    seen = iter(range(1, 100))

    @contextlib.contextmanager
    def progress(prefix: Callable[[], str]) -> Iterator[OnProgress]:
        number = next(seen)

        def show(step: Progress) -> None:
            if number == problem and step.stage == "tune" and step.done == done:
                raise KeyboardInterrupt

        yield show

    return progress


@pytest.mark.parametrize("form", ["--json", ""])
def test_an_interrupted_list_keeps_what_it_has_and_goes_on_there(
    cli: Cli, machine: Machine, listed: str, db_path: Path, form: str
) -> None:
    arguments = [word for word in ("tune", listed, form) if word]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_command, "find_progress", interrupting(problem=2, done=2))
        result = cli(*arguments)
    assert result.exit_code == 130
    assert result.stderr.strip() == "hipfind: error: interrupted"
    if form:
        assert json.loads(result.stdout)["interrupted"] is True
        assert states(result) == ["tuned"]
    else:
        assert result.stdout.splitlines()[-1] == "3 problems on fake: 1 tuned, 2 left for the next run"
    assert len(configs(db_path)["Tuned"]) == 2, "what the interrupted search found is kept"
    machine.reset()
    assert states(cli("tune", listed, "--json")) == ["already tuned", "tuned", "tuned"]
    assert machine.tried("Tuned") == 4
    assert configs(db_path) == {"Tuned": ["tile=64"] * 3, "Other": ["tile=64"] * 3}


def test_a_dry_run_stores_nothing(cli: Cli, machine: Machine, listed: str, db_path: Path) -> None:
    result = cli("tune", listed, "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.count("would tune: Tuned, Other") == 3
    assert result.stdout.splitlines()[-1] == "3 problems on fake: 3 would tune"
    assert machine.launches == 0 and not db_path.exists()


def test_only_some_solvers(cli: Cli, machine: Machine, listed: str, db_path: Path) -> None:
    assert states(cli("tune", listed, "--solver", "Other", "--json")) == ["tuned"] * 3
    assert configs(db_path) == {"Other": ["tile=64"] * 3}
    assert states(cli("tune", listed, "--solver", "Other", "--json")) == ["already tuned"] * 3
    assert states(cli("tune", listed, "--json")) == ["tuned"] * 3


@pytest.mark.parametrize(("seconds", "tried"), [("0.001", 1), ("0.05", 2), ("60", 4)])
def test_the_time_limit_is_shared_by_a_problems_searches(
    cli: Cli, machine: Machine, listed: str, seconds: str, tried: int
) -> None:
    """The default of Tuned takes 21 ms to try, the others 7 ms or more; two solvers share the limit."""
    result = cli("tune", listed, "--time-limit", seconds, "--json", tune_time_limit_ms=0, tune_patience=0)
    for one in json.loads(result.stdout)["problems"]:
        first = {search["solver_id"]: search["tried"] for search in one["searches"]}
        assert first["Tuned"] == tried
        assert first["Other"] <= tried


def test_a_problem_that_fails_does_not_stop_the_others(cli: Cli, machine: Machine, listed: str) -> None:
    for one in machine.behaviours.values():
        one.launch_error = "illegal address"
    result = cli("tune", listed, "--json")
    assert result.exit_code == 1
    assert states(result) == ["failed"] * 3
    messages = result.stderr.splitlines()
    assert [message.split(": ")[2] for message in messages] == [f"{listed}:{line}" for line in (1, 2, 3)]
    assert all("no solver has a usable result on fake" in message for message in messages)


def test_lines_that_cannot_be_read_are_named_and_the_others_tuned(cli: Cli, machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"{PROBLEMS[0].key()}\nhello\n{PROBLEMS[0].key()}\nconv-fwd-n1\n")
    result = cli("tune", str(path))
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first.startswith(
        f"hipfind: error: {path}:2: this line names no problem (got hello); a line is a MIOpenDriver"
    )
    assert second.startswith(f"hipfind: error: {path}:4: ")
    assert result.stdout.splitlines()[-1] == "1 problems on fake: 1 tuned, 1 listed twice, 2 not read"
    data = json.loads(cli("tune", str(path), "--json").stdout)
    assert [one["where"] for one in data["unread"]] == [f"{path}:2", f"{path}:4"]
    assert data["listed_twice"] == 1


def test_standard_input_and_several_files(machine: Machine, tmp_path: Path, db_path: Path, listed: str) -> None:
    yaml = tmp_path / "list.yaml"
    yaml.write_text(f"- {PROBLEMS[1].key()}\n")
    with settings.override(user_db_path=str(db_path)):
        text = f"{PROBLEMS[0].key()}\nnothing\n"
        result = CliRunner().invoke(main, ["tune", "-", str(yaml), "--json"], input=text, catch_exceptions=False)
    assert result.exit_code == 1
    assert "standard input:2: " in result.stderr
    where = [one["where"] for one in json.loads(result.stdout)["problems"]]
    assert where == ["standard input:1", f"{yaml}:1"]


def test_a_file_without_problems_fails(cli: Cli, machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("# nothing\n")
    result = cli("tune", str(path))
    assert result.exit_code == 1
    assert f"there is no problem in {path}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("nowhere.txt",), "nowhere.txt"),
        ((), "Missing argument"),
        (("LIST", "--solver", "Tuner"), "did you mean Tuned?"),
        (("LIST", "--time-limit", "0"), "--time-limit"),
        (("LIST", "--all-configs"), "--all-configs is for --compile-only"),
        (("LIST", "--compile-only", "--again"), "leave out --again"),
    ],
)
def test_wrong_use(
    cli: Cli, machine: Machine, listed: str, db_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    result = cli("tune", *(listed if word == "LIST" else word for word in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert not db_path.exists()


def test_on_the_host_device(cli: Cli, tmp_path: Path, db_path: Path) -> None:
    path = tmp_path / "model.log"
    command = f"./bin/MIOpenDriver conv {' '.join(SMALL)} -F 0"
    path.write_text(f"epoch 1\nMIOpen(HIP): Command [LogCmdConvolution] {command}\nepoch 2\n")
    result = cli("tune", str(path), "--json")
    assert (result.exit_code, states(result)) == (0, ["tuned"] * 3)
    rows = rows_in(db_path)
    assert states(cli("tune", str(path), "--json")) == ["already tuned"] * 3
    assert rows_in(db_path) == rows
    with PerfDb.open(db_path, read_only=True) as db:
        assert {solver for (solver,) in db.read("SELECT solver_id FROM perf_records")} >= {"GemmFwdRest", "GemmBwdRest"}


# compiling only -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.txt"
    path.write_text(f"conv {' '.join(SMALL)} -F 5\n")
    return str(path)


def test_kernels_are_compiled_for_a_device_that_is_not_here(
    cli: Cli, small: str, tmp_path: Path, db_path: Path
) -> None:
    cache = tmp_path / "cache"
    arguments = ("tune", "--compile-only", "--device", "null:sm_90", small, "--solver", "ConvDirectNaiveConvFwd")
    result = cli(*arguments, "--json", cache_dir=str(cache))
    assert (result.exit_code, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    assert (facts["device"], facts["problems"], facts["solutions"], facts["failures"]) == ("null:sm_90", 2, 1, [])
    files = list(cache.iterdir())
    assert facts["kernels"] == facts["new_files"] == facts["cache_files"] == len(files) > 0
    assert facts["new_bytes"] == facts["cache_bytes"] == sum(file.stat().st_size for file in files)
    again = cli(*arguments, cache_dir=str(cache)).stdout.splitlines()
    assert again[1].split(maxsplit=1) == ["problems", "2, 1 solutions"]
    assert again[3].split(maxsplit=1) == ["new", "0 files, 0 B"]
    assert not db_path.exists()


def test_a_null_device_is_refused_before_the_first_problem(cli: Cli, small: str, db_path: Path) -> None:
    result = cli("tune", "--device", "null:sm_90", small)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a null device compiles and never runs" in result.stderr
    assert not db_path.exists()


def test_default_configs_or_all_and_failures_named(
    cli: Cli, machine: Machine, listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.behaviours["Tuned.tile=128"].compile_error = "spills"
    default = json.loads(cli("tune", "--compile-only", listed, "--json").stdout)
    assert (default["solutions"], default["kernels"], default["failures"]) == (9, 3, [])
    result = cli("tune", "--compile-only", "--all-configs", listed, "--json")
    assert result.exit_code == 1
    every = json.loads(result.stdout)
    assert (every["solutions"], every["kernels"], len(every["failures"])) == (27, 9, 1)
    (message,) = result.stderr.splitlines()
    assert message.startswith("hipfind: error: Tuned tile=128: ") and "spills" in message
    assert machine.launches == 0


# progress -------------------------------------------------------------------------------------------------------------


def test_time_left_is_by_the_mean_of_what_was_worked_on() -> None:
    now = [0.0]
    left = TimeLeft(5, lambda: now[0])
    left.begin()
    assert left.seconds is None
    left.end(counts=False)
    for seconds in (10.0, 20.0):
        left.begin()
        now[0] += seconds
        left.end()
    left.begin()
    assert left.seconds == 30.0
    now[0] += 5.0
    assert left.seconds == 25.0
    now[0] += 100.0
    assert left.seconds == 15.0


def test_the_progress_names_the_problem_and_the_time_left(
    cli: Cli, machine: Machine, listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    @contextlib.contextmanager
    def progress(prefix: Callable[[], str]) -> Iterator[OnProgress]:
        yield lambda step: shown.append(prefix())

    monkeypatch.setattr(tune_command, "find_progress", progress)
    cli("tune", listed)
    assert shown[0] == "[1/3] "
    assert shown[-1].startswith("[3/3, ") and shown[-1].endswith(" left] ")
