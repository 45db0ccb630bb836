"""What a request must look like to reach the lessons.

The server listens on the loopback interface only, but any page in the browser can send requests
there. So a request needs a token that other pages do not know, a ``Host`` that is this server
(DNS rebinding), and, if it comes from a page, the ``Origin`` of this server. Bodies are limited.
"""

from __future__ import annotations

import secrets
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

MOST_BYTES = 1 << 18
TOO_LARGE = f"requests have at most {MOST_BYTES:,} bytes"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Pass on requests that have the token, Host and Origin of this server and a small body."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        # Browsers leave out the usual port.
        ports = (f":{port}", "") if port == 80 else (f":{port}",)
        self._hosts = {name + end for name in ("127.0.0.1", "localhost") for end in ports}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close"})
            return
        sent = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sent)
            return
        path = scope["path"][len(self._token) + 1 :]
        if not path:  # the address without its last slash
            await RedirectResponse(f"/{self._token}/", 308)(scope, receive, sent)
            return
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self._app(inner, _limited(receive), sent)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host = headers.get("host", [])
        if len(host) != 1 or host[0].lower() not in self._hosts:
            return _refuse(421, "this server answers to 127.0.0.1 and localhost only")
        origin = headers.get("origin", [])
        reading = scope["method"] in ("GET", "HEAD")
        if any(o.lower() not in self._origins for o in origin) or not (origin or reading):
            return _refuse(403, "requests must come from the page of this server")
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return _refuse(404, "open the address that was printed when the server started")
        length = headers.get("content-length", ["0"])[0]
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return _refuse(413, TOO_LARGE)
        kind = headers.get("content-type", [""])[0].split(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            return _refuse(415, "requests must contain JSON")
        return None


def _refuse(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)


def _limited(receive: Receive) -> Receive:
    """Raise when more bytes arrive than are accepted, whatever their number was said to be."""
    total = 0

    async def received() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MOST_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return received


def _with_headers(send: Send) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            added = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sent
