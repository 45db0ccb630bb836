"""Describe the machine and the versions that results were obtained with."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path
from typing import Any

import joblib
import torch


def machine() -> dict[str, Any]:
    """Return processor, threads, cores and versions of the current process.

    Returns
    -------
    dict
        Keys ``machine``, ``threads``, ``cores``, ``torch`` and ``python``.
    """
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        model = next(
            (
                line.split(":")[1].strip()
                for line in cpuinfo.read_text().splitlines()
                if line.startswith("model name")
            ),
            model,
        )
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {
        "machine": model,
        "threads": torch.get_num_threads(),
        "cores": joblib.cpu_count(),
        **versions,
    }


def describe(about: dict[str, Any] | None = None) -> str:
    """Return a one-line description of a machine.

    Parameters
    ----------
    about : dict, default=None
        What :func:`machine` returned; None describes the current process.

    Returns
    -------
    str
        The description.
    """
    about = about or machine()
    cores = f"{about['threads']} of {about['cores']} cores"
    return f"{about['machine']}, {cores}, torch {about['torch']}, Python {about['python']}"


def today() -> str:
    """Return the date.

    Returns
    -------
    str
        The date as YYYY-MM-DD.
    """
    return datetime.date.today().isoformat()
