"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor


def make_folder(path: Path) -> None:
    """There is one afterwards, or an error that says why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"{path} is to be a folder, but a file of that name is in the way") from None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Open for one process at a time; it ends with the process, however that ends."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(f"another run is at work in {folder}; wait for it, or use another folder") from None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write to the path it gives; that file takes the place of ``path`` once it is complete and on the disk, or is gone if anything fails."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_tensors(path: str | Path, kind: str, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """A safetensors file with a JSON header that says what it holds."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as partial:
        try:
            save_file(tensors, partial, {"tensorswitch": json.dumps({"format": kind, **header})})
        except SafetensorError as error:  # as it calls a full disk
            raise OSError(f"{path} could not be written: {error}") from error


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file and its header, which must be of this format."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not {'a file' if Path(path).exists() else 'there'}")
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get("tensorswitch", "{}"))
            if not isinstance(header, dict) or header.get("format") != kind:
                raise ValueError(f"{path} does not hold {kind}")
            return {key: file.get_tensor(key) for key in file.keys()}, header  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
