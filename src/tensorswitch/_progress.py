"""Progress bars, made only when wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], total: int, description: str, unit: str, show: bool) -> Iterable[Item]:
    """The items themselves, with a bar if it is to be shown."""
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, total=total, desc=description, unit=unit)  # type: ignore[no-any-return]


@contextmanager
def progress_bar(description: str, show: bool) -> Iterator[Callable[[str], None]]:
    """For loops without a known end: call what it gives with a note at each turn."""
    if not show:
        yield lambda note: None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=description) as bar:

        def turn(note: str) -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update()

        yield turn
