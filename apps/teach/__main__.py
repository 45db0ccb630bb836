"""The command: serves the page to browsers on this machine, until interrupted."""

from __future__ import annotations

import argparse
import socket
import sys
import webbrowser
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    """Parse the options and serve the page."""
    options = _parser().parse_args(arguments)
    try:
        _serve(options)
    except KeyboardInterrupt:
        sys.exit(130)  # as shells have it
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def _port(text: str) -> int:
    """Return a port, since argparse has no ranges that a message could name."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535, got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m apps.teach",
        description="Open a page where you draw symbols and a model learns them while you watch.",
    )
    add = parser.add_argument
    add("--folder", type=Path, default="lessons", help="where lessons are saved and read from")
    add("--start", default="empty", help="empty (the default), digits, or a saved lesson")
    add("--port", type=_port, default=0, help="port on 127.0.0.1; by default a free one")
    add(
        "--browser",
        action=argparse.BooleanOptionalAction,
        default=sys.stdout.isatty(),
        help="open the page in a browser, which is the default in a terminal",
    )
    return parser


def _serve(options: argparse.Namespace) -> None:
    try:
        import uvicorn

        from apps.teach.classroom import Classroom
        from apps.teach.lesson import pattern_features
        from apps.teach.server import application, new_token
    except ModuleNotFoundError as error:
        raise ImportError(
            f"the page needs {error.name}; in a clone of the repository: pip install '.[teach]'"
        ) from error
    classroom = Classroom(options.folder, options.start)
    with _listening(options.port) as listening:
        port, token = listening.getsockname()[1], new_token()
        address = f"http://127.0.0.1:{port}/{token}/"
        print(f"open {address}\nthe address contains a password; stop with Ctrl-C", flush=True)
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
        if options.browser:
            webbrowser.open(address)
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


if __name__ == "__main__":
    main()
