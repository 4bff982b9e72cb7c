"""The host's compiler: how one is found, what its identity depends on, and what a failure says."""

from __future__ import annotations

import os
import pathlib
import shlex
import sys

import pytest

from hipfind import settings
from hipfind.device import host_compiler
from hipfind.device.host_compiler import HostCompiler, find_compiler
from hipfind.errors import CompileError, CompilerNotFoundError
from hipfind.kernels.spec import KernelSpec
from tests.helpers.process import ROOT, run_python

CAST = KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "bf16"),))


def script(folder: pathlib.Path, name: str, text: str) -> pathlib.Path:
    """An executable shell script."""
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def own_cache(tmp_path):
    with settings.override(cache_dir=str(tmp_path / "cache")):
        yield


@pytest.fixture
def no_ziglang(monkeypatch):
    monkeypatch.setattr(host_compiler.importlib.util, "find_spec", lambda name: None)


def test_cxx_comes_first_with_its_options(tmp_path, monkeypatch):
    path = script(tmp_path, "my-c++", "exit 0")
    monkeypatch.setenv("CXX", f"{path} -m64 '-DX=a b'")
    assert find_compiler().command == (str(path), "-m64", "-DX=a b")


def test_the_order_of_system_compilers(tmp_path, monkeypatch, no_ziglang):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("clang++", "g++", "c++"):
        path = script(tmp_path, name, "exit 0")
        assert find_compiler().command == (str(path),)


def test_a_cxx_that_is_not_there_is_said_and_passed_over(tmp_path, monkeypatch):
    path = script(tmp_path, "c++", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.warns(UserWarning, match="/no/such/compiler"):
        assert find_compiler().command == (str(path),)


def test_ziglang_is_the_last_resort(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host_compiler.importlib.util, "find_spec", lambda name: object() if name == "ziglang" else None)
    assert find_compiler().command == (sys.executable, "-m", "ziglang", "c++")


def test_no_compiler_at_all_names_what_was_tried_and_the_remedy(monkeypatch, tmp_path, no_ziglang):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerNotFoundError, match=r"g\+\+.*ziglang.*pip install 'hipfind\[host\]'"):
        find_compiler()


def test_without_a_compiler_the_rest_of_the_device_works(tmp_path):
    code = (
        "import numpy as np\n"
        "from hipfind.device.devices import get_device\n"
        "from hipfind.errors import CompilerNotFoundError\n"
        "from hipfind.kernels.spec import GemmSpec, KernelSpec\n"
        "from hipfind.problem import ConvProblem\n"
        "from hipfind.problem.dtypes import DType\n"
        "from hipfind.solvers.reasons import Reason\n"
        "from hipfind.solvers.registry import default_registry\n"
        "device = get_device('host')\n"
        "assert not device.target.kernels and device.environment()['compiler'] == 'none'\n"
        "a = np.arange(6, dtype=np.float16).reshape(2, 3)\n"
        "c = np.zeros((2, 2), np.float16)\n"
        "spec = GemmSpec(2, 2, 3, DType.FP16, DType.FP16, 3, 3, 2, trans_b=True)\n"
        "device.prepare_gemm(spec)(a.ctypes.data, a.ctypes.data, c.ctypes.data, 0)\n"
        "assert (c == a @ a.T).all()\n"
        "problem = ConvProblem.create('fwd', (1, 2, 5, 5), (3, 2, 3, 3))\n"
        "naive = default_registry().get('ConvDirectNaiveConvFwd').IsApplicable(device.target, problem)\n"
        "assert naive.reason is Reason.NO_COMPILER, naive\n"
        "try: device.prepare_kernel(KernelSpec('cast.hip', 'cast_from_fp32', (('ELEM', 'bf16'),)), (), 1)\n"
        "except CompilerNotFoundError as error: print(error.remedy)\n"
    )
    hide = (
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'ziglang' else find(name, *more)\n"
    )
    done = run_python(["-c", hide + code], tmp_path, PATH="", CXX="", PYTHONPATH=str(ROOT))
    assert "pip install 'hipfind[host]'" in done.stdout, done.stderr


@pytest.fixture
def compiler():
    try:
        return find_compiler()
    except CompilerNotFoundError:
        pytest.skip("no C++ compiler on this machine")


def test_a_compile_error_carries_the_compilers_message_and_command(compiler):
    spec = KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "no_such_type"),))
    with pytest.raises(CompileError, match=r"cast_from_fp32 of cast\.hip did not compile") as caught:
        compiler.compile(spec)
    assert "no_such_type" in caught.value.log and "no_such_type" in str(caught.value)
    assert compiler.command[0] in str(caught.value.got) and "-DELEM=no_such_type" in str(caught.value.got)


def test_a_compiler_that_does_not_run_says_so(tmp_path, own_cache):
    broken = HostCompiler((str(script(tmp_path, "c++", "echo 'licence expired' >&2; exit 3")),))
    with pytest.raises(CompileError, match="licence expired"):
        broken.compile(CAST)


def test_a_compiler_that_went_away_says_so(own_cache):
    with pytest.raises(CompileError, match="not there any more"):
        HostCompiler(("/no/such/compiler",)).compile(CAST)


def test_no_room_for_temporary_files_is_a_compile_error(compiler, monkeypatch):
    assert compiler.identity

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(CompileError, match="TMPDIR"):
        compiler.compile(CAST)


def test_the_identity_changes_with_compiler_version_and_instruction_sets(tmp_path, own_cache, compiler):
    real = shlex.join(compiler.command)
    fake = script(tmp_path, "c++", f'[ "$1" = --version ] && echo "c++ 1.0" && exit\nexec {real} "$@"')
    first = HostCompiler((str(fake),)).identity
    assert "c++ 1.0" in first and "-O3" in first
    script(tmp_path, "c++", f'[ "$1" = --version ] && echo "c++ 2.0" && exit\nexec {real} "$@"')
    os.utime(fake, ns=(1, 1))  # a file system with coarse times must not hide the change
    second = HostCompiler((str(fake),)).identity
    script(tmp_path, "c++", f'[ "$1" = --version ] && echo "c++ 2.0" && exit\nexec {real} "$@" -D__AVX99__')
    os.utime(fake, ns=(2, 2))
    third = HostCompiler((str(fake),)).identity
    assert "c++ 2.0" in second and len({first, second, third}) == 3


def test_the_identity_is_asked_once_and_kept(tmp_path, own_cache, compiler, monkeypatch):
    first = HostCompiler(compiler.command).identity

    def never(*_):
        raise AssertionError("the compiler was run again")

    monkeypatch.setattr(host_compiler, "_run", never)
    assert HostCompiler(compiler.command).identity == first


def test_another_cpu_asks_again(own_cache, compiler, monkeypatch):
    assert HostCompiler(compiler.command).identity
    asked = []
    run = host_compiler._run
    monkeypatch.setattr(host_compiler, "_run", lambda *a: asked.append(a) or run(*a))
    monkeypatch.setattr(host_compiler, "cpu_flags", lambda: "another cpu")
    assert HostCompiler(compiler.command).identity and asked


@pytest.mark.parametrize("accepted", ["-march=native", "-mcpu=native", "neither"])
def test_options_for_this_cpu_are_those_that_the_compiler_takes(tmp_path, own_cache, accepted):
    refuse = "".join(
        f'case "$*" in *{name}*) echo "unknown {name}" >&2; exit 1;; esac\n'
        for name in ("-march=native", "-mcpu=native")
        if name != accepted
    )
    fake = script(tmp_path, "c++", f'[ "$1" = --version ] && echo v && exit\n{refuse}echo "#define A 1"')
    options = HostCompiler((str(fake),)).facts.options
    assert [name for name in options if "native" in name] == ([accepted] if accepted != "neither" else [])


def test_zig_builds_no_standard_library(tmp_path, own_cache):
    fake = script(tmp_path, "c++", 'echo "clang version 22 (https://github.com/ziglang/zig-bootstrap)"')
    assert "-nostdlib++" in HostCompiler((str(fake),)).facts.options
