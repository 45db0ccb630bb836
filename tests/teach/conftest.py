import socket
import threading
import time

import pytest


@pytest.fixture
def address(tmp_path):
    """The address of a server that runs in a thread, with lessons in ``tmp_path / "lessons"``."""
    uvicorn = pytest.importorskip("uvicorn")
    from apps.teach.classroom import Classroom
    from apps.teach.server import application, new_token

    listening = socket.create_server(("127.0.0.1", 0))
    port, token = listening.getsockname()[1], new_token()
    app = application(Classroom(tmp_path / "lessons"), token, port)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/{token}/"
    server.should_exit = True
    thread.join(60)
    listening.close()
