"""Lessons of several people at once, and the folder where they are saved."""

from __future__ import annotations

import re
import secrets
import threading
from pathlib import Path

from apps.teach.lesson import Lesson

__all__ = ["Classroom", "Seat"]

MOST_LESSONS = 32
STARTS = ("empty", "digits")  # what lessons can start with besides a saved one
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
SUFFIX = ".safetensors"


class Seat:
    """A lesson, and a lock since requests come in several threads."""

    def __init__(self, lesson: Lesson) -> None:
        self.lesson = lesson
        self.lock = threading.Lock()
        self.untouched = True  # nothing would be lost with it


class Classroom:
    """Hold the lessons that are open, each with a model of its own.

    `start` is what new lessons start with: "empty", "digits", or the name of a lesson in `folder`,
    the only place where lessons are saved and read from.
    """

    def __init__(self, folder: Path, start: str = "empty") -> None:
        self.folder, self.start = folder, start
        self._seats: dict[str, Seat] = {}
        self._lock, self._saving = threading.Lock(), threading.Lock()
        if start not in STARTS:
            self.path_of(start, must_exist=True)

    def open(self, start: str | None = None, closing: str = "") -> tuple[str, Seat]:
        """Open a lesson, in place of `closing` if given; its key is known to its page only."""
        start = self.start if start is None else start
        with self._lock:
            if closing not in self._seats:
                self._make_room()
        if start == "empty":
            lesson = Lesson()
        elif start == "digits":
            lesson = Lesson.digits()
        else:
            lesson = Lesson.load(self.path_of(start, must_exist=True))
        key, seat = secrets.token_urlsafe(12), Seat(lesson)
        with self._lock:
            self._seats.pop(closing, None)
            self._seats[key] = seat
        return key, seat

    def seat(self, key: str) -> Seat:
        """Return the open lesson of that key."""
        with self._lock:
            if key not in self._seats:
                raise KeyError(
                    "this lesson is not open any more: the server was restarted, "
                    "or others took its place"
                )
            self._seats[key] = seat = self._seats.pop(key)  # the last one used is the last one
            return seat

    def close(self, key: str) -> None:
        """Close a lesson and forget its drawings."""
        with self._lock:
            self._seats.pop(key, None)

    def names(self) -> list[str]:
        """Return the names of saved lessons."""
        found = (path for path in self.folder.glob(f"*{SUFFIX}") if not path.is_symlink())
        names = (path.name.removesuffix(SUFFIX) for path in found)
        return sorted(name for name in names if NAME.fullmatch(name))

    def path_of(self, name: object, *, must_exist: bool = False) -> Path:
        """Return the path of a saved lesson, which never lies outside the folder."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(
                "a name has 1 to 40 letters, digits, hyphens and underscores, and starts with a "
                f"letter or digit, got {name!r:.60}"
            )
        path = self.folder / f"{name}{SUFFIX}"
        if must_exist and (not path.is_file() or path.is_symlink()):
            raise FileNotFoundError(f"there is no lesson {name!r} in {self.folder}")
        return path

    def save(self, seat: Seat, name: object, replace: bool) -> Path:
        """Save a lesson under a name, and return the file."""
        path = self.path_of(name)
        if name in STARTS:
            raise ValueError(f"{name!r} is a lesson that is always there; choose another name")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(
                f"{self.folder} must be a folder, but there is a file of that name"
            ) from None
        with self._saving:  # of two lessons of one name, the second must see the first
            if path.is_symlink():  # it would lead out of the folder
                raise ValueError(f"{path} is a link; remove it or choose another name")
            if path.exists() and not replace:
                raise FileExistsError(f"there is already a lesson {name!r}")
            seat.lesson.save(path)
        seat.untouched = True
        return path

    def _make_room(self) -> None:
        if len(self._seats) < MOST_LESSONS:
            return
        for key, seat in self._seats.items():
            if seat.untouched:
                del self._seats[key]
                return
        raise ValueError(
            f"{MOST_LESSONS} lessons with unsaved drawings are open; save one, or close it with "
            "“New lesson”, first"
        )
