"""One exception tree. Every message says what failed and the rule, then the value that it got, then a remedy."""

from __future__ import annotations

_NOT_GIVEN = object()


class HipfindError(Exception):
    """Base of every error that hipfind raises on purpose.

    ``what`` states what failed and which rule was broken, ``got`` is the offending value, ``remedy`` says what to do.
    """

    def __init__(self, what: str, *, got: object = _NOT_GIVEN, remedy: str = "") -> None:
        self.what = what
        self.got = None if got is _NOT_GIVEN else got
        self.remedy = remedy
        message = what
        if got is not _NOT_GIVEN:
            message += f" (got {got})" if isinstance(got, str) else f" (got {got!r})"
        if remedy:
            message += f"; {remedy}"
        super().__init__(message)


class ProblemError(HipfindError, ValueError):
    """A problem description breaks a rule (extents, channels, groups, dtypes, layouts)."""


class ParseError(ProblemError):
    """A key or a command line could not be understood."""


class SettingError(HipfindError, ValueError):
    """A HIPFIND_* variable, or an override of one, holds a value that is not legal."""


class ArrayError(HipfindError, ValueError):
    """An array handed to a plan does not fit its problem (shape, dtype, strides, device)."""


class ConfigError(HipfindError, ValueError):
    """A perf config is not valid for the target or the problem."""


class UnknownSolverError(HipfindError, KeyError):
    """No registered solver has this id."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class NotApplicableError(HipfindError):
    """A solver was asked by name for a problem that it cannot solve."""


class NoSolutionError(HipfindError):
    """No solver can answer this problem under the given limits."""


class WorkspaceError(HipfindError, ValueError):
    """The workspace given is smaller than the solution needs, or lies on another device."""


class DeviceError(HipfindError):
    """A device is not there, or a call to it failed."""


class OutOfMemoryError(DeviceError, MemoryError):
    """An allocation on a device failed; the message names the sizes."""


class KernelLaunchError(DeviceError):
    """A kernel failed when it was launched or while it ran."""


class CompileError(HipfindError):
    """A kernel did not compile. ``log`` is the compiler's own message."""

    def __init__(self, what: str, *, log: str = "", got: object = _NOT_GIVEN, remedy: str = "") -> None:
        self.log = log
        if log:
            what = f"{what}:\n{log.rstrip()}"
        super().__init__(what, got=got, remedy=remedy)


class CompilerNotFoundError(CompileError):
    """There is no compiler for this device's kernels."""


class DataFileError(HipfindError):
    """A file of tensor data could not be read or written, or does not have the tensor's size."""


class NumericsError(HipfindError, ArithmeticError):
    """A tensor holds NaN or Inf, and HIPFIND_CHECK_NUMERICS asks for an error."""


class NumericsWarning(UserWarning):
    """A tensor holds NaN or Inf, and HIPFIND_CHECK_NUMERICS asks for a warning."""


class PerfDbError(HipfindError):
    """The perf DB could not be opened, read, or written. Find and immediate mode warn about it and go on."""


class PerfDbWarning(UserWarning):
    """The perf DB is not usable, or part of it is not; the answer was obtained without it."""
