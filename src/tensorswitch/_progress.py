"""Progress bars; tqdm is imported only if one is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def track(
    items: Iterable[Item], total: int, description: str, unit: str, show: bool
) -> Iterable[Item]:
    """Return the items, wrapped in a progress bar if ``show`` is true."""
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, total=total, desc=description, unit=unit)  # type: ignore[no-any-return]


@contextmanager
def progress_bar(
    description: str, show: bool, total: int | None = None, done: int = 0
) -> Iterator[Callable[..., None]]:
    """Yield a function that advances the bar by a number of turns and sets the note beside it."""
    if not show:
        yield lambda turns=1, note=None: None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=description, total=total, initial=done) as bar:

        def turn(turns: int = 1, note: str | None = None) -> None:
            if note is not None:
                bar.set_postfix_str(note, refresh=False)
            bar.update(turns)

        yield turn
