"""Atomic writing of files, and folders that one run has to itself."""

import hashlib
import json
import os
import platform
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np


def make_folder(path: Path) -> None:
    """Create the folder if it does not exist; raise if the path is a file."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"{path} must be a folder, but there is a file of that name"
        ) from None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; raise if another process holds it."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(
            f"{folder} is in use by another run; wait for it, or use another folder"
        ) from None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Replace a file atomically: yield the path of a temporary one, which takes its place.

    It is in a folder of its own next to ``path``, because some writers put further temporary files
    beside it, of a random name and created exclusively, so that no symbolic link is followed. The
    mode is that of the file that is replaced, else that of the umask. What a link leads to is
    replaced; devices and pipes, such as ``/dev/stdout``, are written to.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file to write")
    if _is_stream(path):
        with TemporaryDirectory() as elsewhere:
            partial = Path(elsewhere) / path.name
            yield partial
            # An open file is continued where it is; opened again, it would be overwritten.
            target = os.dup(int(name)) if (name := _descriptor(path)) else path
            with partial.open("rb") as content, open(target, "ab") as stream:
                shutil.copyfileobj(content, stream)
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path.name}: the folder {path.parent} does not exist"
        )
    _remove_leftovers(path)
    folder = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    partial = folder / path.name
    try:
        folder.mkdir()
        yield partial
        # Some writers make files that only their owner can read.
        usual = stat.S_IMODE(folder.stat().st_mode) & 0o666
        os.chmod(partial, stat.S_IMODE(path.stat().st_mode) if path.exists() else usual)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        temporary = error.filename in (None, str(partial), str(folder))
        if error.errno is None or not temporary:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_stream(path: Path) -> bool:
    """Return whether a path is a device, a pipe or an open file."""
    special = path.is_char_device() or path.is_block_device() or path.is_fifo() or path.is_socket()
    return special or bool(_descriptor(path))


def _descriptor(path: Path) -> str:
    """Return the number of the open file that a path stands for, as /dev/stdout does, or ""."""
    *folder, name = Path(os.path.abspath(path)).parts
    if folder == ["/", "dev"]:
        return {"stdout": "1", "stderr": "2"}.get(name, "")
    return name if folder == ["/", "dev", "fd"] and name.isdecimal() else ""


def _remove_leftovers(path: Path) -> None:
    """Remove temporary folders of processes on this machine that have ended."""
    prefix = f".{path.name}.{_host()}-"
    for entry in path.parent.iterdir():
        name = entry.name
        if name.startswith(prefix) and name.endswith(".part"):
            process = name.removeprefix(prefix).split("-")[0]
            if process.isdecimal() and not _is_running(int(process)):
                shutil.rmtree(entry, ignore_errors=True)


def _host() -> str:
    """Return a short name of this machine, since a folder may be shared with others."""
    return hashlib.blake2b(platform.node().encode(), digest_size=3).hexdigest()


def _is_running(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 is not harmless
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs under another user
        return True
    return True


def as_json(value: object) -> Any:
    """Return a value as JSON would: tuples become lists, NumPy numbers those of Python."""
    return json.loads(json.dumps(value, default=_number))


def _number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be written as JSON")


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
