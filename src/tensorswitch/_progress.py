"""Progress bars on standard error, and durations in words; rich is imported only if needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")


def track(items: Iterable[Item], total: int, description: str, show: bool) -> Iterator[Item]:
    """Yield the items, with a progress bar while they are taken if ``show`` is true."""
    with progress_bar(description, show, total) as turn:
        for item in items:
            yield item
            turn()


@contextmanager
def progress_bar(
    description: str, show: bool, total: int | None = None, done: int = 0
) -> Iterator[Callable[..., None]]:
    """Yield a function that advances the bar by a number of steps and sets the note beside it."""
    if not show:
        yield lambda turns=1, note=None: None
        return
    with _bar() as bar:
        task = bar.add_task(description, total=total, completed=done, note="")

        def turn(turns: int = 1, note: str | None = None) -> None:
            if note is not None:
                bar.update(task, note=note)
            bar.update(task, advance=turns)

        yield turn


class DownloadBar:
    """The progress bar that pooch expects: a total, and steps counted in bytes."""

    def __init__(self, description: str) -> None:
        self._bar, self._description = _bar(), description
        self.total: int | None = None
        self._task = self._bar.add_task(description, note="")

    def update(self, count: int) -> None:
        """Advance the bar; it appears with the first bytes."""
        self._bar.start()
        self._bar.update(self._task, advance=count, total=self.total)

    def reset(self) -> None:
        """Start over, as pooch does before its last update."""
        self._bar.reset(self._task, total=self.total)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


def clock(seconds: float) -> str:
    """Return a duration in words: seconds, minutes, or hours and minutes."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _bar() -> Progress:
    from rich import progress
    from rich.console import Console

    name = progress.TextColumn("{task.description}")
    note = progress.TextColumn("{task.fields[note]}", markup=False)
    columns = (name, progress.BarColumn(), progress.TaskProgressColumn(), note)
    times = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    return progress.Progress(*columns, *times, console=Console(stderr=True))
