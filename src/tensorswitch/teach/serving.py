"""Running the server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["serve"]


def serve(
    folder: str | Path = "lessons",
    *,
    start: str = "empty",
    port: int = 0,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the page to browsers on this machine, until interrupted.

    Parameters
    ----------
    folder : str or Path, default="lessons"
        Where lessons are saved and read from.
    start : str, default="empty"
        What lessons start with: "empty", "digits", or the name of a saved lesson.
    port : int, default=0
        Port on 127.0.0.1; 0 takes a free one.
    ready : callable, default=print
        Called with the address of the page as soon as it can be opened.

    Raises
    ------
    ImportError
        If Starlette or uvicorn is not installed.
    OSError
        If the port is in use.
    """
    try:
        import uvicorn

        from tensorswitch.teach.classroom import Classroom
        from tensorswitch.teach.lesson import pattern_features
        from tensorswitch.teach.server import application, new_token
    except ImportError as error:
        raise ImportError(
            f"the page needs {error.name}: pip install 'tensorswitch[teach]'"
        ) from error
    classroom = Classroom(Path(folder), start)
    with _listening(port) as listening:
        port, token = listening.getsockname()[1], new_token()
        config = uvicorn.Config(
            application(classroom, token, port),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            limit_concurrency=64,
        )
        pattern_features()  # before the first lesson waits for them
        ready(f"http://127.0.0.1:{port}/{token}/")
        uvicorn.Server(config).run(sockets=[listening])


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback interface."""
    # With the protocol named, asyncio sends packets at once, without waiting for acknowledgements.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise OSError(f"port {port} cannot be used ({error.strerror}); choose another") from error
    found.listen(128)
    return found
