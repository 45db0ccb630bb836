"""The server of the page: lessons as JSON."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from apps.teach.classroom import Classroom, Seat
from apps.teach.drawings import Frame, draw
from apps.teach.guard import Guard

__all__ = ["application", "new_token"]

MOST_STROKES, MOST_POINTS = 200, 4_000
PAGE = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
# Updates are small, and dividing them among cores takes longer than they do. The number of threads
# of torch is a setting of each thread.
_WORKERS = ThreadPoolExecutor(joblib.cpu_count(), "lesson", torch.set_num_threads, (1,))
STATUS = {FileExistsError: 409, FileNotFoundError: 404, KeyError: 404, ValueError: 400}


def new_token() -> str:
    """Return a random token for the address of the page."""
    return secrets.token_hex(16)


def application(classroom: Classroom, token: str, port: int) -> ASGIApp:
    """Return the page and its lessons as an ASGI application."""
    api = _Api(classroom)
    lesson = "/lessons/{key}"
    routes = [
        *(Route(path, _file(*content), methods=["GET"]) for path, content in PAGE.items()),
        Route("/names", _json(api.names), methods=["GET"]),
        Route("/lessons", _json(api.open), methods=["POST"]),
        Route(lesson, _json(api.show), methods=["GET"]),
        Route(lesson, _json(api.close), methods=["DELETE"]),
        Route(f"{lesson}/accuracy", _json(api.accuracy), methods=["GET"]),
        Route(f"{lesson}/answer", _json(api.answer), methods=["POST"]),
        Route(f"{lesson}/drawings", _json(api.add), methods=["POST"]),
        Route(f"{lesson}/drawings.npz", _json(api.export), methods=["GET"]),
        Route(f"{lesson}/drawings/{{number:int}}", _json(api.remove), methods=["DELETE"]),
        Route(f"{lesson}/save", _json(api.save), methods=["POST"]),
    ]
    handlers: Any = {HTTPException: _http_error}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, port)


class _Api:
    """What the page can ask for; each method takes parameters of the path and the body."""

    def __init__(self, classroom: Classroom) -> None:
        self._classroom = classroom

    def names(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        room = self._classroom
        return {"names": room.names(), "folder": str(room.folder), "start": room.start}

    def open(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        start = body.get("start")
        if start is not None and not isinstance(start, str):
            raise ValueError(f"start must be text, got {type(start).__name__}")
        key, seat = self._classroom.open(start, str(body.get("closing", "")))
        with seat.lock:
            return {"key": key, "drawings": _drawings(seat), **_report(seat)}

    def show(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat = self._classroom.seat(path["key"])
        with seat.lock:
            found = {"key": path["key"], "drawings": _drawings(seat), **_report(seat)}
            return {**found, "unsaved": not seat.untouched}

    def close(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        self._classroom.close(path["key"])
        return {}

    def accuracy(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat = self._classroom.seat(path["key"])
        with seat.lock:
            score = seat.lesson.accuracy()
        return {"accuracy": score}

    def answer(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat, strokes = self._classroom.seat(path["key"]), _strokes(body)
        start = time.perf_counter()
        image, frame = draw(strokes)
        with seat.lock:
            found = seat.lesson.answer(image)
        if found is None:
            return {"image": _encoded(image), "labels": []}
        shares = found.contributions
        return {
            "image": _encoded(image),
            "labels": found.labels,
            "probabilities": found.probabilities,
            "contributions": np.round(shares, 5).ravel().tolist(),
            "strokes": [_along(shares, stroke, frame) for stroke in strokes],
            "open_gates": found.open_gates,
            "gates": found.gates,
            "milliseconds": _since(start),
        }

    def add(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat, strokes = self._classroom.seat(path["key"]), _strokes(body)
        image, _ = draw(strokes)
        with seat.lock:
            start = time.perf_counter()
            number = seat.lesson.add(image, body.get("label"))  # type: ignore[arg-type]
            seat.untouched = False
            report = _report(seat)
            label = seat.lesson.labels[-1]
            drawing = {"number": number, "label": label, "image": _encoded(image)}
            return {"drawing": drawing, "milliseconds": _since(start), **report}

    def remove(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat = self._classroom.seat(path["key"])
        with seat.lock:
            start = time.perf_counter()
            seat.lesson.remove(path["number"])
            seat.untouched = False
            report = _report(seat)
            return {"milliseconds": _since(start), **report}

    def save(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat = self._classroom.seat(path["key"])
        with seat.lock:
            saved = self._classroom.save(seat, body.get("name"), body.get("replace") is True)
        return {"path": str(saved)}

    def export(self, path: dict[str, Any], body: dict[str, Any]) -> Any:
        seat = self._classroom.seat(path["key"])
        with seat.lock:
            content = seat.lesson.npz()
        headers = {"content-disposition": 'attachment; filename="drawings.npz"'}
        return Response(content, 200, headers, "application/octet-stream")


def _report(seat: Seat) -> dict[str, Any]:
    """Return what the panel shows, with the readout solved."""
    lesson = seat.lesson
    if lesson.model is not None:
        _ = lesson.model.solution_
    return {"rows": len(lesson.labels), "features": lesson.features}


def _drawings(seat: Seat) -> list[dict[str, Any]]:
    lesson = seat.lesson
    return [
        {"number": number, "label": label, "image": _encoded(image)}
        for number, label, image in zip(lesson.numbers, lesson.labels, lesson.images, strict=True)
    ]


def _encoded(image: np.ndarray) -> str:
    return base64.b64encode(image.tobytes()).decode()


def _since(start: float) -> float:
    return round(1e3 * (time.perf_counter() - start), 1)


def _strokes(body: dict[str, Any]) -> list[np.ndarray]:
    """Return the strokes of a request, or raise if they are not points in the unit square."""
    given = body.get("strokes")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_STROKES:
        raise ValueError(f"strokes must be a list of 1 to {MOST_STROKES} strokes")
    strokes = []
    for stroke in given:
        try:
            points = np.array(stroke, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            points = np.empty(0)
        if points.ndim != 2 or points.shape[1] != 2 or not len(points):
            raise ValueError("a stroke must be a list of points [x, y]")
        if not ((points >= 0) & (points <= 1)).all():
            raise ValueError("points must lie between 0 and 1")
        strokes.append(points)
    if sum(map(len, strokes)) > MOST_POINTS:
        raise ValueError(f"a drawing has at most {MOST_POINTS:,} points")
    return strokes


def _along(shares: np.ndarray, stroke: np.ndarray, frame: Frame) -> list[float]:
    """Return the contribution of the pixel under each point of a stroke."""
    x, y = frame.pixels(stroke).astype(int).clip(0, len(shares) - 1).T
    return [round(float(value), 5) for value in shares[y, x]]


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = (Path(__file__).parent / "page" / name).read_bytes()

    def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


def _json(method: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Any:
    """Return an endpoint that reads and writes JSON, and says what was wrong."""

    async def endpoint(request: Request) -> Response:
        try:
            body = _parsed(await request.body())
            call = partial(method, request.path_params, body)
            found = await asyncio.get_running_loop().run_in_executor(_WORKERS, call)
        except tuple(STATUS) as error:
            status = next(STATUS[kind] for kind in STATUS if isinstance(error, kind))
            return _error(error.args[0] if isinstance(error, KeyError) else str(error), status)
        except OSError as error:  # a full disk, for example
            return _error(f"{error.filename or 'the file'}: {error.strerror or error}", 507)
        return found if isinstance(found, Response) else JSONResponse(found)

    return endpoint


def _parsed(content: bytes) -> dict[str, Any]:
    if not content:
        return {}
    try:
        body = json.loads(content, parse_constant=_not_finite)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError("the request is not JSON") from None
    if not isinstance(body, dict):
        raise ValueError("the request must be a JSON object")
    return body


def _not_finite(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _http_error(request: Request, error: HTTPException) -> Response:
    return _error(error.detail, error.status_code)


def _error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status)
