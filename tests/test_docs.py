"""The documents tell the truth: their code runs, their links lead somewhere, generated pages agree with the code."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.helpers.process import ROOT, run_python

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"(?:<!-- example: (?P<name>\w+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def examples(page: str) -> dict[str, str]:
    """Named code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return {match["name"]: match["code"] for match in _BLOCK.finditer(text) if match["name"]}


def test_the_readme_example_runs_and_is_about_ten_lines(tmp_path: Path) -> None:
    code = examples("README.md")["readme"]
    lines = [line for line in code.splitlines() if line.strip()]
    assert 6 <= len(lines) <= 12
    done = run_python(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "GemmBwdRest"


def test_the_first_page_of_the_docs_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    done = run_python(["-c", code + "assert np.isfinite(y).all() and y.shape == (8, 64, 4, 4)"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_solver_of_the_docs_is_found_and_right(tmp_path: Path) -> None:
    parts = examples("docs/add-a-solver.md")
    check = """
mine = next(one for one in report.candidates if one.solver_id == "GroupedPointFwd")
assert mine.is_usable and mine.verified, mine
import numpy as np
x = np.random.default_rng(0).standard_normal((64, 32, 7, 7))
w = np.random.default_rng(1).standard_normal((64, 8, 7, 7))
double = hf.ConvProblem.create("fwd", x.shape, w.shape, groups=4, dtype="fp64")
y = hf.plan(double, solver="GroupedPointFwd")(x, w)
expected = double.reference({"x": x, "w": w})
assert np.abs(y - expected).max() < 1e-10
"""
    done = run_python(["-c", parts["solver"] + parts["use"] + check], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "GroupedPointFwd" in done.stdout


@pytest.mark.parametrize("name", ["settings.md", "cli.md"])
def test_generated_pages_agree_with_the_code(name: str) -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"]
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert pages[name]() == written, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_the_readme_maps_every_folder() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "hipfind").glob("*/__init__.py")]
    folders = [*packages, "docs", "examples", "benchmarks", "tests"]
    assert [name for name in folders if f"{name}/" not in text] == []


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install hipfind[docs])")
    done = run_python(
        ["-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "mkdocs.yml"), "-d", str(tmp_path / "site")],
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "index.html").exists()
