"""Describe the machine and the versions that results were obtained with."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path
from typing import Any

import joblib
import torch


def machine() -> dict[str, Any]:
    """Return processor, threads, cores and versions of the current process."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "machine": models[0] if models else model,
        "threads": torch.get_num_threads(),
        "cores": joblib.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def describe(about: dict[str, Any] | None = None) -> str:
    """Describe in one line what :func:`machine` returned, by default for the current process."""
    about = about or machine()
    cores = f"{about['threads']} of {about['cores']} cores"
    return f"{about['machine']}, {cores}, torch {about['torch']}, Python {about['python']}"


def today() -> str:
    """Return the date as YYYY-MM-DD."""
    return datetime.date.today().isoformat()
