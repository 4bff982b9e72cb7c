"""What ``import hipfind`` loads: nothing of a vendor's, and nothing that only the command line needs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.process import run_python

FORBIDDEN = ("hip", "rocm", "cuda", "nvmath", "triton", "torch", "cupy", "click", "rich", "yaml")
_LOADED = "import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"


def loaded_by(module: str, home: Path) -> list[str]:
    done = run_python(["-c", _LOADED.format(module=module)], home)
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stdout)
    return loaded


def test_importing_the_package_loads_no_vendor_and_no_command_line(tmp_path: Path) -> None:
    loaded = loaded_by("hipfind", tmp_path)
    assert [name for name in loaded if name.partition(".")[0] in FORBIDDEN] == []


def test_using_the_host_loads_no_vendor_and_no_command_line(tmp_path: Path) -> None:
    problem = "hf.ConvProblem.create('fwd', (1, 2, 4, 4), (3, 2, 2, 2))"
    use = f"import json, sys, hipfind as hf; hf.immediate({problem}, device='host')"
    done = run_python(["-c", f"{use}; print(json.dumps(sorted(sys.modules)))"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert [name for name in json.loads(done.stdout) if name.partition(".")[0] in FORBIDDEN] == []


def test_find_is_the_function_whatever_was_imported_before(tmp_path: Path) -> None:
    """The package has a subpackage of the same name."""
    for first in ("import hipfind.find.engine", "from hipfind.find import engine", "import hipfind.cli.main"):
        check = f"{first}; import hipfind as hf; print(callable(hf.find), hf.find.__name__)"
        assert run_python(["-c", check], tmp_path).stdout.strip() == "True find"


def test_importing_the_command_line_loads_no_vendor(tmp_path: Path) -> None:
    loaded = loaded_by("hipfind.cli.main", tmp_path)
    command_line = ("click", "rich", "yaml")
    vendors = [name for name in FORBIDDEN if name not in command_line]
    assert [name for name in loaded if name.partition(".")[0] in vendors] == []


def test_importing_touches_no_file_of_the_user(tmp_path: Path) -> None:
    loaded_by("hipfind", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_there(tmp_path: Path) -> None:
    check = (
        "import hipfind; print([name for name in hipfind.__all__ if not hasattr(hipfind, name)], len(hipfind.__all__))"
    )
    done = run_python(["-c", check], tmp_path)
    assert done.stdout.startswith("[] "), done.stderr
    assert int(done.stdout.split()[1]) > 10
