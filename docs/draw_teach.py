"""Draw symbols on the page of ``python -m apps.teach`` and take a picture of it: docs/teach.png.

    python -m docs.draw_teach

Needs the extra ``teach``, selenium, Chromium and its driver.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

PICTURE = Path(__file__).with_name("teach.png")
TURN = np.linspace(0, 2 * np.pi, 49)
POINTS = 25  # of each stroke; the browser takes its time for each
FLAGS = ("headless", "no-sandbox", "disable-gpu", "hide-scrollbars", "window-size=1180,1330")


def arc(x: float, y: float, radius: float, start: float, stop: float) -> np.ndarray:
    """Return points on a circle, angles in turns."""
    angle = 2 * np.pi * np.linspace(start, stop, 32)
    return np.stack([x + radius * np.cos(angle), y + radius * np.sin(angle)], 1)


HEART = np.stack([16 * np.sin(TURN) ** 3, -13 * np.cos(TURN) + 5 * np.cos(2 * TURN)
                  + 2 * np.cos(3 * TURN) + np.cos(4 * TURN)], 1) / 42 + 0.5  # fmt: skip
PI = (
    [[0.15, 0.25], [0.85, 0.22]],
    [[0.36, 0.25], [0.33, 0.55], [0.26, 0.8]],
    [[0.62, 0.24], [0.62, 0.65], [0.67, 0.78], [0.76, 0.76]],
)
ARROW = ([[0.15, 0.5], [0.85, 0.5]], [[0.62, 0.28], [0.85, 0.5], [0.62, 0.72]])
SUM = ([[0.75, 0.2], [0.25, 0.2], [0.55, 0.5], [0.25, 0.8], [0.75, 0.8]],)
SMILE = (
    arc(0.5, 0.5, 0.38, 0, 1),
    arc(0.38, 0.4, 0.03, 0, 1),
    arc(0.62, 0.4, 0.03, 0, 1),
    arc(0.5, 0.48, 0.2, 0.07, 0.43),
)
SYMBOLS = {"heart": (HEART,), "smile": SMILE, "π": PI, "arrow": ARROW, "∑": SUM}


def varied(strokes: Any, random: np.random.Generator) -> list[np.ndarray]:
    """Return strokes that are turned, stretched and shaken a little, as by a hand."""
    change = np.eye(2) + random.normal(0, 0.09, (2, 2))
    moved = []
    for stroke in map(np.asarray, strokes):
        fine = np.linspace(0, len(stroke) - 1, POINTS)
        stroke = np.stack([np.interp(fine, range(len(stroke)), c) for c in stroke.T], 1)
        phase = np.linspace(0, 1, len(stroke))[:, None] * random.uniform(2, 6, 2)
        wobble = 0.012 * np.sin(2 * np.pi * (phase + random.random(2)))
        moved.append((0.5 + (stroke - 0.5) @ change + wobble).clip(0.03, 0.97))
    return moved


def draw(browser: WebDriver, strokes: list[np.ndarray]) -> None:
    """Draw with the mouse."""
    canvas = browser.find_element(By.ID, "canvas")
    side = canvas.rect["width"]
    builder = ActionBuilder(browser, mouse=PointerInput("mouse", "mouse"), duration=4)
    for stroke in strokes:
        for place, (x, y) in enumerate((stroke - 0.5) * side):
            builder.pointer_action.move_to(canvas, round(x), round(y))
            if not place:
                builder.pointer_action.pointer_down()
        builder.pointer_action.pointer_up()
    builder.perform()


def teach(browser: WebDriver, address: str) -> None:
    """Teach four drawings of each symbol, and draw one more."""
    random = np.random.default_rng(0)
    wait = WebDriverWait(browser, 60)
    browser.get(address)

    def text(name: str) -> str:
        return browser.find_element(By.ID, name).text

    def shows(rows: int) -> Callable[[Any], bool]:
        return lambda _: text("rows") == str(rows)

    wait.until(lambda _: text("features") != "–")
    rows = 0
    for label, strokes in SYMBOLS.items():
        for _ in range(4):
            draw(browser, varied(strokes, random))
            browser.find_element(By.ID, "label").send_keys(label)
            browser.find_element(By.ID, "learn").click()
            rows += 1
            wait.until(shows(rows))
    draw(browser, varied(SYMBOLS["smile"], random))
    wait.until(lambda _: text("answer").startswith("smile"))
    browser.execute_script("document.activeElement.blur()")


def main() -> None:
    """Start the server, teach it, and take the picture."""
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "apps.teach", "--no-browser", "--folder", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            teach(browser, found[0])
            browser.save_screenshot(str(PICTURE))
        finally:
            browser.quit()
            server.terminate()
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
