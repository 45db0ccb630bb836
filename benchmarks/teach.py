"""How long the page of ``python -m apps.teach`` takes to learn, forget and answer.

    python -m benchmarks.teach

A server in a process of its own, and requests over HTTP as the page sends them: drawings of random
strokes, four labels, up to 1,000 of them, then from the 1,797 embedded digits. Milliseconds per
request as the page sees them. If MNIST is there, the last table says what a model that has seen a
few of its digits knows of others.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx
import numpy as np

from apps.teach import Lesson
from benchmarks._measure import describe, print_table
from tensorswitch import data

CHECKED = (10, 100, 300, 1000)
REPEATS = 20


def strokes(random: np.random.Generator) -> list[Any]:
    """Return two strokes of 40 points."""
    knots = random.uniform(0.1, 0.9, (2, 5, 2))
    fine, places = np.linspace(0, 4, 40), np.arange(5)
    return [np.stack([np.interp(fine, places, c) for c in k.T], 1).round(4).tolist() for k in knots]


def timed(call: Any, *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Return the milliseconds of a request and its reply."""
    start = time.perf_counter()
    reply = call(*arguments, **options)
    reply.raise_for_status()
    return 1e3 * (time.perf_counter() - start), reply.json()


def requests(client: httpx.Client, lesson: str, random: np.random.Generator) -> list[list[float]]:
    """Return the milliseconds of learning, judging, answering and forgetting, several times."""
    times = []
    for _ in range(REPEATS):
        drawn, label = strokes(random), str(random.integers(4))
        learn, reply = timed(
            client.post, f"{lesson}/drawings", json={"label": label, "strokes": drawn}
        )
        judge, _ = timed(client.get, f"{lesson}/accuracy")
        answer, _ = timed(client.post, f"{lesson}/answer", json={"strokes": drawn})
        number = reply["drawing"]["number"]
        forget, _ = timed(client.delete, f"{lesson}/drawings/{number}")
        times.append([learn, judge, answer, forget])
    return times


def row(name: str, times: list[list[float]]) -> list[str]:
    """Return a line of the table: medians and the slowest request."""
    found = np.array(times)
    return [name, *(f"{value:.0f}" for value in (*np.median(found, 0), found.max()))]


def speed(client: httpx.Client) -> None:
    """Print the milliseconds of requests by the number of drawings."""
    random, rows = np.random.default_rng(0), []
    lesson = f"lessons/{timed(client.post, 'lessons', json={})[1]['key']}"
    seen = 0
    for count in CHECKED:
        for _ in range(count - seen):
            body = {"label": str(random.integers(4)), "strokes": strokes(random)}
            timed(client.post, f"{lesson}/drawings", json=body)
        seen = count
        rows.append(row(f"{count:,}", requests(client, lesson, random)))
    _, reply = timed(client.post, "lessons", json={"start": "digits"})
    rows.append(row("1,797 digits", requests(client, f"lessons/{reply['key']}", random)))
    print_table(
        ["drawings", "learn ms", "accuracy ms", "answer ms", "forget ms", "slowest ms"], rows
    )


def accuracy(per_class: tuple[int, ...] = (1, 2, 5, 10, 50, 100)) -> None:
    """Print the accuracy on 5,000 validation digits of MNIST, by the drawings of each class."""
    digits = data.load("mnist")
    images, labels = digits.train_images[:, 0], digits.train_labels
    random, rows = np.random.default_rng(0), []
    held, pool = slice(-5000, None), np.arange(len(images) - 5000)
    starts: list[tuple[str, Lesson]] = [("1,797 embedded digits", Lesson.digits())]
    for count in per_class:
        chosen = np.concatenate(
            [random.choice(pool[labels[pool] == c], count, replace=False) for c in range(10)]
        )
        names = [str(label) for label in labels[chosen]]
        starts.append((f"{count} of each MNIST digit", Lesson.of(images[chosen], names)))
    for name, lesson in starts:
        assert lesson.model is not None
        right = lesson.model.predict(images[held]) == labels[held].astype(str)
        rows.append([name, f"{100 * lesson.model.cv_score_:.1f}", f"{100 * right.mean():.1f}"])
    print_table(["learned from", "cross-validated %", "5,000 other MNIST digits %"], rows)


def main() -> None:
    """Run the server and print the tables."""
    print(describe(), "\n")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "apps.teach", "--no-browser", "--folder", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = re.search(r"(http://[^/]+)\S+", server.stdout.readline())
            assert address is not None
            headers = {"origin": address[1]}
            with httpx.Client(base_url=address[0], headers=headers, timeout=60) as client:
                speed(client)
        finally:
            server.terminate()
    print()
    try:
        accuracy()
    except (FileNotFoundError, OSError) as error:
        print(f"MNIST is not there ({error})")


if __name__ == "__main__":
    main()
