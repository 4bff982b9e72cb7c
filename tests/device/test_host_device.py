"""The host device: memory, kernels over threads, loading of compiled code, timing, facts."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from hipfind import settings
from hipfind.device import host_kernel
from hipfind.device.host import HostDevice
from hipfind.device.host_kernel import HostKernel, load_library
from hipfind.device.host_threads import Workers, thread_count, usable_cores
from hipfind.device.kernel_cache import Entry, digest, kernel_cache
from hipfind.errors import CompileError, DeviceError, OutOfMemoryError
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem.dtypes import DType
from tests.helpers.process import ROOT, clean_environment

CAST = KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "bf16"),))
BF16 = np.dtype(ml_dtypes.bfloat16)


def cast(device: HostDevice, items: int, spec: KernelSpec = CAST) -> None:
    """Run the cast on new data and check every element and the one after the last."""
    values = np.random.default_rng(items).standard_normal(items + 1).astype(np.float32)
    out = np.full(items + 1, np.nan, BF16)
    device.prepare_kernel(spec, (), items)((values.ctypes.data, out.ctypes.data), 0)
    assert np.array_equal(out[:items], values[:items].astype(BF16)) and np.isnan(out[items])


# memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1 << 20])
def test_memory_is_aligned_and_all_of_it_is_there(nbytes):
    device = HostDevice()
    memory = device.allocate(nbytes)
    assert memory.address % 64 == 0 and memory.nbytes == nbytes
    device.set_bytes(memory.address, nbytes, 0xFF)
    assert (device.as_numpy(memory, np.uint8, (nbytes,)) == 0xFF).all()


def test_copies_go_both_ways():
    device = HostDevice()
    values = np.arange(1000, dtype=np.float64)
    memory = device.allocate(values.nbytes)
    device.copy_in(memory.address, values)
    values += 1
    assert np.array_equal(device.as_numpy(memory, np.float64, (1000,)), values - 1)


@pytest.mark.parametrize("nbytes", [1 << 60, 1 << 45])
def test_more_memory_than_there_is_is_refused_with_the_sizes(nbytes):
    device = HostDevice()
    with pytest.raises(OutOfMemoryError, match=f"{nbytes} bytes.*{device.target.memory_bytes}"):
        device.allocate(nbytes)


def test_there_is_one_stream():
    device = HostDevice()
    memory = device.allocate(64)
    gemm = device.prepare_gemm(GemmSpec(1, 1, 1, DType.FP32, DType.FP32, 1, 1, 1))
    calls = (
        lambda: device.synchronize(3),
        lambda: device.set_bytes(memory.address, 1, 0, 3),
        lambda: device.time_ms(lambda: None, 3),
        lambda: device.flush_cache(3),
        lambda: gemm(memory.address, memory.address, memory.address, 3),
    )
    for call in calls:
        with pytest.raises(DeviceError, match="one stream"):
            call()
    device.synchronize()


# kernels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 17])
@pytest.mark.parametrize("items", [0, 1, 2, 1000, 300_007])
def test_every_item_is_run_whatever_the_number_of_threads(host, monkeypatch, threads, items):
    monkeypatch.setattr(host_kernel, "_SPREAD_NS", 0)  # everything is worth spreading
    with settings.override(host_threads=threads):
        cast(host, items)


def test_small_work_stays_on_the_calling_thread(host, monkeypatch):
    monkeypatch.setattr(host_kernel, "_SPREAD_NS", 10**12)
    monkeypatch.setattr(Workers, "run", None)
    with settings.override(host_threads=4):
        cast(host, 5000)


def test_a_prepared_kernel_runs_from_many_threads_on_other_buffers(host, monkeypatch):
    monkeypatch.setattr(host_kernel, "_SPREAD_NS", 0)
    items, failures = 20_000, []
    with settings.override(host_threads=3):
        run = host.prepare_kernel(CAST, (), items)

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).standard_normal(items).astype(np.float32)
        expected = values.astype(BF16)
        for _ in range(10):
            out = np.full(items, np.nan, BF16)
            run((values.ctypes.data, out.ctypes.data), 0)
            if not np.array_equal(out, expected):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kernels_run_in_a_forked_child(host, monkeypatch):
    monkeypatch.setattr(host_kernel, "_SPREAD_NS", 0)
    with settings.override(host_threads=3):
        cast(host, 10_000)  # the parent's threads exist, and do not survive the fork
        child = os.fork()
        if child == 0:
            status = 1
            try:
                cast(host, 10_000)
                status = 0
            finally:
                os._exit(status)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, 9)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 0


def test_an_error_in_a_part_reaches_the_caller_and_stops_the_rest():
    ran = []

    def part(first: int, last: int) -> None:
        ran.append(first)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        Workers().run(part, 0, 1000, 2)
    assert len(ran) <= 2


def test_work_is_done_when_no_thread_can_be_started(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", refuse)
    done: list[int] = []
    Workers().run(lambda first, last: done.extend(range(first, last)), 5, 1000, 8)
    assert sorted(done) == list(range(5, 1000))


def test_the_setting_gives_the_number_of_threads():
    with settings.override(host_threads=0):
        assert thread_count() == usable_cores() >= 1
    with settings.override(host_threads=5):
        assert thread_count() == 5


def test_parameters_arrive_as_int64_and_double(tmp_path, host):
    """The struct by value: many fields, negative and large ints, floats between ints."""
    kinds = [int, int, float, int, float]
    fields = "".join(f"{'double' if kind is float else 'long long'} p{i}; " for i, kind in enumerate(kinds))
    source = tmp_path / "params.hip"
    source.write_text(
        f"struct Params {{ {fields}}};\n"
        'extern "C" void params(long long, long long, double* out, Params p) {\n'
        + "".join(f"    out[{i}] = double(p.p{i});\n" for i in range(len(kinds)))
        + "}\n"
    )
    library = load_library(Entry(host._compiler.compile(KernelSpec(str(source), "params")), None))
    out = np.zeros(len(kinds))
    values = (-(2**40), 7, 0.1, 2**62, -1e300)
    HostKernel(library, "params", values, 1, Workers(), 1)([out.ctypes.data])
    assert tuple(out) == tuple(float(value) for value in values)


# compiled code --------------------------------------------------------------------------------------------------------


def compiled(device: HostDevice) -> bytes:
    key = digest(CAST.content_hash, device._compiler.identity)
    return kernel_cache().get(key, lambda: device._compiler.compile(CAST)).code


def test_a_damaged_library_in_the_cache_is_compiled_again(tmp_path, host):
    with settings.override(cache_dir=str(tmp_path)):
        cast(HostDevice(), 100)
        entries = [path for path in tmp_path.iterdir() if path.read_bytes().startswith(b"\x7fELF")]
        assert len(entries) == 1
        damaged = tmp_path / "damaged"  # a new file: this process has the old one mapped
        damaged.write_bytes(entries[0].read_bytes()[:5000])
        damaged.replace(entries[0])
        cast(HostDevice(), 100)
        assert len(entries[0].read_bytes()) > 5000


def test_code_in_a_folder_that_must_not_hold_programs_is_loaded_from_memory(tmp_path, host, monkeypatch):
    path = tmp_path / "kernel"
    path.write_bytes(b"not a library")  # loading fails as it does on a file system mounted noexec
    entry = Entry(compiled(host), path)
    load_library(entry).cast_from_fp32  # noqa: B018
    monkeypatch.delattr(os, "memfd_create", raising=False)
    load_library(entry).cast_from_fp32  # noqa: B018


def test_two_libraries_from_memory_are_not_taken_for_one(host):
    other = KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp16"),))
    first = load_library(Entry(compiled(host), None))
    second = load_library(Entry(host._compiler.compile(other), None))
    one, out = np.float32([1.0]), np.zeros(1, np.uint16)
    results = []
    for library in (first, second):
        HostKernel(library, "cast_from_fp32", (), 1, Workers(), 1)([one.ctypes.data, out.ctypes.data])
        results.append(int(out[0]))
    assert results == [0x3F80, 0x3C00]


def test_code_that_is_no_library_says_so():
    with pytest.raises(CompileError, match="cannot be loaded"):
        load_library(Entry(b"nonsense", None))


def test_without_a_cache_directory_kernels_still_run(tmp_path, host):
    (tmp_path / "file").write_text("")
    with settings.override(cache_dir=str(tmp_path / "file" / "cache")), pytest.warns(UserWarning, match="in memory"):
        cast(HostDevice(), 100)


RACE = (
    "import numpy as np\n"
    "from tests.device.test_host_device import cast\n"
    "from hipfind.device.host import HostDevice\n"
    "cast(HostDevice(), 1000)\n"
)


def test_processes_that_start_with_an_empty_cache_all_work(tmp_path, host):
    environment = clean_environment(tmp_path, HIPFIND_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=str(ROOT))
    processes = [
        subprocess.Popen([sys.executable, "-c", RACE], env=environment, cwd=ROOT, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()


# facts ----------------------------------------------------------------------------------------------------------------


def test_time_is_that_of_the_call_in_milliseconds():
    assert HostDevice().time_ms(lambda: time.sleep(0.02)) >= 20.0


def test_flushing_writes_more_than_the_last_level_cache_and_reuses_its_buffer():
    device = HostDevice()
    device.flush_cache()
    first = device._flush
    device.flush_cache()
    assert device._flush is first and first.nbytes >= min(2 * device.target.l2_bytes, 128 << 20)


def test_the_target_is_plausible():
    target = HostDevice().target
    assert target.is_host and target.compute_units == usable_cores() and target.arch == os.uname().machine
    assert 1e-3 < target.vector_tflops < 1e3 and 1 << 28 < target.memory_bytes < 1 << 48
    assert target.peak("fp64") < target.peak("bf16") == target.peak("fp16") < target.peak("fp32")
    assert 500 < target.clock_mhz < 10_000 and 1 << 18 <= target.l2_bytes <= 4 << 30


def test_a_machine_that_says_nothing_about_itself_has_a_target(monkeypatch, tmp_path):
    from hipfind.device import host_target

    monkeypatch.setattr(host_target, "_CPU", tmp_path / "nothing")
    monkeypatch.setattr(host_target, "_cpu_facts", dict)
    target = host_target.host_target(kernels=False)
    assert target.vector_tflops > 0 and target.l2_bytes > 0 and not target.kernels and target.name


@pytest.mark.parametrize(("siblings", "count"), [("0", 1), ("0,64", 2), ("0-1", 2), ("0-3,8-11", 8), ("", 1)])
def test_threads_that_share_a_core_are_counted(monkeypatch, tmp_path, siblings, count):
    from hipfind.device import host_target

    (tmp_path / "topology").mkdir()
    (tmp_path / "topology/thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(host_target, "_CPU", pathlib.Path(tmp_path))
    assert host_target._threads_per_core() == count


def test_the_environment_is_text_and_names_what_changes_times():
    environment = HostDevice().environment()
    assert {"cpu", "threads", "numpy", "blas", "compiler"} <= set(environment)
    assert json.loads(json.dumps(environment)) == environment and environment["numpy"] == np.__version__


def test_a_kernel_leaves_the_interpreter_free(host):
    """While a kernel runs, other Python threads do: the call is made without the interpreter lock."""
    library = host._library(CAST)
    assert not library.cast_from_fp32._flags_ & ctypes._FUNCFLAG_PYTHONAPI
