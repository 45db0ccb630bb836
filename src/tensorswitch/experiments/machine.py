"""What a run was made on, to stand beside its numbers."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
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
        "cores": os.cpu_count(),
        **versions,
    }


def describe(about: dict[str, Any] | None = None) -> str:
    about = about or machine()
    return f"{about['machine']}, {about['threads']} of {about['cores']} cores, torch {about['torch']}, Python {about['python']}"


def today() -> str:
    return datetime.date.today().isoformat()
