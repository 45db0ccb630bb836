"""Progress bars, made only when wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def track(
    items: Iterable[Item], total: int, description: str, unit: str, show: bool
) -> Iterable[Item]:
    """The items themselves, with a bar if it is to be shown."""
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, total=total, desc=description, unit=unit)  # type: ignore[no-any-return]


@contextmanager
def progress_bar(
    description: str, show: bool, total: int | None = None, done: int = 0
) -> Iterator[Callable[..., None]]:
    """Call what it gives after each turn; with a number of turns and a note to show, if there is something to say."""
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
