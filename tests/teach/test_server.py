import base64
import io
import json
import re
import socket
import threading
from collections import Counter

import numpy as np
import pytest

from apps.teach import draw

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

BAR = [[[0.5, 0.1], [0.5, 0.9]]]
MINUS = [[[0.1, 0.5], [0.9, 0.5]]]
VEE = [[[0.1, 0.1], [0.5, 0.9], [0.9, 0.1]]]


@pytest.fixture
def client(address):
    origin = re.match(r"http://[^/]+", address)[0]
    with httpx.Client(base_url=address, headers={"origin": origin}, timeout=60) as found:
        yield found


def opened(client, **start):
    found = client.post("lessons", json=start)
    assert found.status_code == 200, found.text
    return f"lessons/{found.json()['key']}"


def taught(client, *pairs):
    lesson = opened(client)
    for label, strokes in pairs:
        found = client.post(f"{lesson}/drawings", json={"label": label, "strokes": strokes})
        assert found.status_code == 200, found.text
    return lesson


def test_it_learns_answers_and_forgets(client):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))
    found = client.post(f"{lesson}/answer", json={"strokes": BAR}).json()
    assert found["labels"] == ["bar", "minus"]
    assert abs(sum(found["probabilities"]) - 1) < 1e-9
    assert len(found["contributions"]) == 28 * 28
    assert [len(stroke) for stroke in found["strokes"]] == [2]
    image = np.frombuffer(base64.b64decode(found["image"]), np.uint8).reshape(28, 28)
    np.testing.assert_array_equal(image, draw([np.array(BAR[0])])[0])
    added = client.post(f"{lesson}/drawings", json={"label": "vee", "strokes": VEE}).json()
    assert added["rows"] == 3
    assert added["drawing"]["label"] == "vee"
    again = client.post(f"{lesson}/answer", json={"strokes": BAR}).json()
    assert set(again["labels"]) == {"bar", "minus", "vee"}
    gone = client.delete(f"{lesson}/drawings/{added['drawing']['number']}").json()
    assert gone["rows"] == 2
    last = client.post(f"{lesson}/answer", json={"strokes": BAR}).json()
    np.testing.assert_allclose(last["probabilities"], found["probabilities"], atol=1e-9)


def test_lessons_are_separate(client):
    first = taught(client, ("bar", BAR), ("minus", MINUS), ("bar", BAR))
    second = taught(client, ("a", VEE))
    shown = [client.get(lesson).json() for lesson in (first, second)]
    assert [len(found["drawings"]) for found in shown] == [3, 1]
    scores = [client.get(f"{lesson}/accuracy").json()["accuracy"] for lesson in (first, second)]
    assert scores[1] is None
    assert 0 <= scores[0] <= 1
    assert client.post(f"{second}/answer", json={"strokes": BAR}).json()["labels"] == []
    client.delete(second)
    assert client.get(second).status_code == 404
    assert client.get(first).status_code == 200


def test_many_threads_lose_nothing(client):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))

    def work(label):
        for _ in range(5):
            client.post(f"{lesson}/drawings", json={"label": label, "strokes": VEE})
            client.post(f"{lesson}/answer", json={"strokes": BAR})

    threads = [threading.Thread(target=work, args=(label,)) for label in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawings = client.get(lesson).json()["drawings"]
    assert len({drawing["number"] for drawing in drawings}) == 22
    counts = Counter(drawing["label"] for drawing in drawings)
    assert counts == {"bar": 1, "minus": 1, **dict.fromkeys("abcd", 5)}


def test_lessons_are_saved_opened_and_exported(client, tmp_path):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))
    saved = client.post(f"{lesson}/save", json={"name": "shapes"})
    assert saved.status_code == 200
    assert (tmp_path / "lessons" / "shapes.safetensors").is_file()
    found = client.get("names").json()
    assert found["names"] == ["shapes"]
    assert found["start"] == "empty"
    again = client.post(f"{lesson}/save", json={"name": "shapes"})
    assert again.status_code == 409
    assert "already a lesson" in again.json()["error"]
    assert client.post(f"{lesson}/save", json={"name": "shapes", "replace": True}).is_success
    copy = opened(client, start="shapes")
    assert len(client.get(copy).json()["drawings"]) == 2
    arrays = np.load(io.BytesIO(client.get(f"{copy}/drawings.npz").content))
    assert arrays["x"].shape == (2, 28, 28)
    assert arrays["y"].tolist() == ["bar", "minus"]


def test_a_full_disk_is_reported(client, monkeypatch):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))

    def full(*_, **__):
        raise OSError(28, "No space left on device", "shapes.safetensors")

    monkeypatch.setattr("apps.teach.lesson.save_estimator", full)
    found = client.post(f"{lesson}/save", json={"name": "shapes"})
    assert found.status_code == 507
    assert found.json()["error"] == "shapes.safetensors: No space left on device"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "strokes must be a list"),
        ({"strokes": []}, "1 to 200 strokes"),
        ({"strokes": [[]]}, "points"),
        ({"strokes": [[[0.5]]]}, "points"),
        ({"strokes": [[["a", "b"]]]}, "points"),
        ({"strokes": [[[0.5, 0.5], [0.5]]]}, "points"),
        ({"strokes": [[[2, 0]]]}, "between 0 and 1"),
        ({"strokes": [[[0.5, 0.5]] * 4001]}, "at most 4,000 points"),
        ({"strokes": [[[0.5, 0.5]]] * 201}, "1 to 200 strokes"),
        ({"strokes": {"0": 1}}, "strokes must be a list"),
    ],
)
def test_bad_strokes_get_a_clear_error(client, body, message):
    lesson = opened(client)
    for path in ("answer", "drawings"):
        found = client.post(f"{lesson}/{path}", json={"label": "a", **body})
        assert found.status_code == 400
        assert message in found.json()["error"]
    assert client.get(lesson).json()["rows"] == 0


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'{"strokes": NaN}', b"[" * 100_000])
def test_malformed_bodies_get_a_clear_error(client, content):
    lesson = opened(client)
    kind = {"content-type": "application/json"}
    found = client.post(f"{lesson}/answer", content=content, headers=kind)
    assert found.status_code == 400
    assert found.json()["error"]


@pytest.mark.parametrize("label", ["", " ", "x" * 21, "\x1b[31m", 5, None, ["a"]])
def test_bad_labels_get_a_clear_error(client, label):
    lesson = opened(client)
    found = client.post(f"{lesson}/drawings", json={"label": label, "strokes": BAR})
    assert found.status_code == 400
    assert "label" in found.json()["error"]


def test_other_addresses_are_not_found(client):
    lesson = opened(client)
    assert client.get("nothing").status_code == 404
    assert client.delete(f"{lesson}/drawings/7").status_code == 404
    assert client.put(lesson, json={}).status_code == 405
    assert client.get("lessons/unknown").status_code == 404


# --- attacks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:80"])
def test_a_foreign_host_is_refused(client, host):
    for path in ("", "names"):
        assert client.get(path, headers={"host": host}).status_code == 421
    assert client.post("lessons", json={}, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1"])
def test_a_foreign_origin_is_refused(client, origin):
    headers = {"origin": origin}
    assert client.get("names", headers=headers).status_code == 403
    assert client.post("lessons", json={}, headers=headers).status_code == 403
    assert client.delete("lessons/x", headers=headers).status_code == 403


def test_changes_need_an_origin(client):
    del client.headers["origin"]
    assert client.get("names").status_code == 200  # an address that is typed in has none
    assert client.post("lessons", json={}).status_code == 403


@pytest.mark.parametrize("token", ["", "0" * 32, "é", "..", "%2e%2e"])
def test_a_wrong_token_is_refused(client, token):
    base = re.match(r"http://[^/]+", str(client.base_url))[0]
    for path in ("", "names", "page.js"):
        found = client.get(f"{base}/{token}/{path}")
        assert found.status_code == 404
        assert "open the address" in found.json()["error"]


@pytest.mark.parametrize(
    "name", ["../up", "..", "/etc/passwd", "a/b", "a\\b", "", "x" * 41, ".hidden", "a\0b", 7, None]
)
def test_names_do_not_leave_the_folder(client, tmp_path, name):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))
    found = client.post(f"{lesson}/save", json={"name": name})
    assert found.status_code == 400
    if name is not None:
        assert client.post("lessons", json={"start": name}).status_code == 400
    assert list(tmp_path.rglob("*.safetensors*")) == []


@pytest.mark.parametrize("path", ["../../pyproject.toml", "..%2f..%2fpage.js", "page.py", "%00"])
def test_no_path_reaches_the_disk(client, path):
    assert client.get(path).status_code == 404


def test_links_in_the_folder_are_not_followed(client, tmp_path):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))
    client.post(f"{lesson}/save", json={"name": "real"})
    folder = tmp_path / "lessons"
    (folder / "link.safetensors").symlink_to(folder / "real.safetensors")
    assert client.post("lessons", json={"start": "link"}).status_code == 404
    outside = tmp_path / "outside"
    (folder / "dangling.safetensors").symlink_to(outside)
    for name in ("link", "dangling"):
        found = client.post(f"{lesson}/save", json={"name": name, "replace": True})
        assert found.status_code == 400
        assert "is a link" in found.json()["error"]
    assert not outside.exists()
    assert client.get("names").json()["names"] == ["real"]


def test_large_bodies_are_refused(client):
    lesson = opened(client)
    kind = {"content-type": "application/json"}
    found = client.post(f"{lesson}/answer", content=b" " * 300_000, headers=kind)
    assert found.status_code == 413

    def endless():
        for _ in range(20):
            yield b" " * 50_000

    found = client.post(f"{lesson}/answer", content=endless(), headers=kind)
    assert found.status_code == 413
    assert client.get(lesson).status_code == 200


def test_forms_of_other_pages_are_refused(client):
    """Browsers send forms across origins without asking; JSON they do not."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        found = client.post("lessons", content=b"{}", headers={"content-type": kind})
        assert found.status_code == 415


def test_broken_requests_do_not_stop_the_server(client):
    host, port = re.match(r"http://([^:]+):(\d+)", str(client.base_url)).groups()
    for content in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000):
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(content)
            line.recv(1000)
    assert client.get("names").status_code == 200


def test_pages_may_load_nothing_from_elsewhere(client):
    found = client.get("")
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    for path in ("", "page.js", "page.css"):
        text = client.get(path).text
        assert not re.search(r"(src|href|url\(|import|fetch\()\W*(https?:)?//", text)
        assert "innerHTML" not in text


def test_the_number_of_lessons_is_limited(client, monkeypatch):
    monkeypatch.setattr("apps.teach.classroom.MOST_LESSONS", 3)
    full = [taught(client, ("bar", BAR)) for _ in range(2)]
    unused = opened(client)
    newest = opened(client)
    assert client.get(unused).status_code == 404  # nothing was drawn in it
    assert all(client.get(lesson).status_code == 200 for lesson in (*full, newest))
    client.post(f"{newest}/drawings", json={"label": "a", "strokes": BAR})
    found = client.post("lessons", json={})
    assert found.status_code == 400
    assert "3 lessons with unsaved drawings" in found.json()["error"]
    assert json.loads(client.get(full[0]).text)["rows"] == 1
    found = client.post("lessons", json={"closing": full[0].split("/")[1]})
    assert found.status_code == 200  # in its place
    assert client.get(full[0]).status_code == 404


def test_it_tells_whether_drawings_are_unsaved(client):
    lesson = opened(client)
    assert not client.get(lesson).json()["unsaved"]
    for label, strokes in (("bar", BAR), ("minus", MINUS)):
        client.post(f"{lesson}/drawings", json={"label": label, "strokes": strokes})
    assert client.get(lesson).json()["unsaved"]
    assert client.post(f"{lesson}/save", json={"name": "shapes"}).is_success
    assert not client.get(lesson).json()["unsaved"]


@pytest.mark.parametrize("name", ["empty", "digits"])
def test_names_of_lessons_that_are_always_there_are_refused(client, name):
    lesson = taught(client, ("bar", BAR), ("minus", MINUS))
    found = client.post(f"{lesson}/save", json={"name": name})
    assert found.status_code == 400
    assert "choose another name" in found.json()["error"]


def test_the_address_without_its_last_slash(client, address):
    found = client.get(address.rstrip("/"))
    assert found.status_code == 308
    assert client.get(address.rstrip("/"), follow_redirects=True).text.startswith("<!doctype html>")
