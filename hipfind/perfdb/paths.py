"""Where the user's perf DB lies: the setting, taken literally, or the user's data directory."""

from __future__ import annotations

import os
from pathlib import Path

from hipfind import settings
from hipfind.perfdb.faults import DbFault, Fault, db_fault

FILE_NAME = "hipfind.db"


def resolve(path: str | os.PathLike[str] | None = None) -> Path:
    """Absolute path of a perf DB file; nothing is created.

    None takes the setting user_db_path; "" means ``hipfind.db`` in the user's data directory. An existing directory,
    or a name with a slash at its end, means ``hipfind.db`` in it. A leading ``~`` is the home directory; every other
    character stands for itself. Raises DbFault where there is no home directory or the path cannot be one.
    """
    text = os.fspath(settings.current().user_db_path if path is None else path)
    if not text:
        return _data_directory() / FILE_NAME
    if "\0" in text:
        raise DbFault(Fault.BAD_PATH, text.replace("\0", "\\0"), "it holds a zero byte")
    is_directory = text.endswith(("/", os.sep))
    try:
        absolute = Path.cwd() / _expanded(text)
        return absolute / FILE_NAME if is_directory or absolute.is_dir() else absolute
    except OSError as error:
        raise db_fault(error, text, "finding its place") from error


def _expanded(text: str) -> str:
    """``~`` and ``~name`` expanded. Never leaves a name that would make a directory called ``~``."""
    if not text.startswith("~"):
        return text
    head, slash, tail = text.partition("/")
    if head == "~":
        return _home() + slash + tail
    home = os.path.expanduser(head)
    if home == head:
        raise DbFault(Fault.BAD_PATH, text, f"there is no user {head[1:]}", f"write ./{head} for a file of that name")
    return home + slash + tail


def _home() -> str:
    """HOME as it is set. A home out of the password file would be a guess: jobs that unset HOME mean it."""
    home = os.environ.get("HOME", "") if os.name == "posix" else os.path.expanduser("~")
    if not home or not os.path.isabs(home):
        raise DbFault(Fault.NO_HOME, f"HOME={home}", "HOME is not absolute" if home else "HOME is not set")
    if not os.path.isdir(home):
        raise DbFault(Fault.NO_HOME, f"HOME={home}", "HOME is not a directory")
    return home


def _data_directory() -> Path:
    import platformdirs  # costs milliseconds, and is not needed where the setting names a path

    if not os.path.isabs(os.environ.get("XDG_DATA_HOME", "")):
        _home()
    return Path(platformdirs.user_data_dir("hipfind", appauthor=False)).absolute()
