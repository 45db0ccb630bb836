"""Defaults against tuned settings on images that nothing was chosen on: letters in unseen fonts.

    python -m benchmarks.letters [--draws 12] [--rows 6000] [--features 2048]

Letters from A to Z are drawn with the fonts that come with matplotlib, turned, stretched
and partly hidden by bars and noise. Test images have fonts of their own. TSConvRidgeClassifier with
nothing but ``random_state`` is compared with the best of some random settings, chosen on fonts left
out of the training images, at the same number of features.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks._measure import describe, print_table
from tensorswitch.estimators import TSConvRidgeClassifier

SIDE, LARGE = 28, 112
# Fonts without letters.
SYMBOLS = ("STIXSiz", "STIXNonUni", "cmex", "cmsy", "cmmi", "LastResort")
DISPLAY = ("DejaVuSansDisplay", "DejaVuSerifDisplay")
PARTS = {"train": 0.6, "validation": 0.2, "test": 0.2}  # of the fonts


def fonts() -> dict[str, list[Path]]:
    """Return the fonts of each part."""
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    found = [p for p in sorted(folder.glob("*.ttf")) if not p.stem.startswith((*SYMBOLS, *DISPLAY))]
    order = np.random.default_rng(0).permutation(len(found))
    ends = np.cumsum([0, *(round(share * len(found)) for share in PARTS.values())])
    ends[-1] = len(found)
    return {
        name: [found[i] for i in order[first:last]]
        for name, first, last in zip(PARTS, ends, ends[1:], strict=False)
    }


def letter(character: str, font: ImageFont.FreeTypeFont, random: np.random.Generator) -> np.ndarray:
    """Return an image of a letter, as bytes."""
    canvas = Image.new("L", (LARGE, LARGE))
    ImageDraw.Draw(canvas).text((LARGE / 2, LARGE / 2), character, 255, font, anchor="mm")
    turn = random.normal(0, 0.15)
    change = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    change = change @ (np.eye(2) + random.normal(0, 0.12, (2, 2)))
    shift = LARGE / 2 - change @ (np.full(2, LARGE / 2) + random.normal(0, 6, 2))
    rows = np.column_stack([change, shift]).ravel().tolist()
    moved = canvas.transform(canvas.size, Image.Transform.AFFINE, rows, Image.Resampling.BILINEAR)
    small = np.asarray(moved.resize((SIDE, SIDE), Image.Resampling.BOX)) / 255
    bar = random.integers(SIDE - 3)
    small[:, bar : bar + 2] = random.random()
    dark, light = random.uniform(0, 0.3), random.uniform(0.5, 1)
    found = dark + (light - dark) * small + random.normal(0, 0.08, small.shape)
    return (255 * np.clip(found, 0, 1)).astype(np.uint8)


def images(paths: list[Path], count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels."""
    random = np.random.default_rng(seed)
    loaded = [ImageFont.truetype(str(path), 80) for path in paths]
    labels = random.integers(26, size=count)
    chosen = random.integers(len(paths), size=count)
    drawn = [
        letter(ascii_uppercase[k], loaded[f], random) for k, f in zip(labels, chosen, strict=True)
    ]
    return np.stack(drawn), labels


def draw(random: np.random.Generator) -> dict[str, Any]:
    """Return random settings."""
    sizes = [(3, 5, 8), (4, 6, 9), (7, 11, 14), (5, 9), (6,), (8, 12)]
    return {
        "sizes": sizes[random.integers(len(sizes))],
        "grid": int(random.integers(1, 5)),
        "components": int(random.choice([24, 48, 80])),
        "open_fraction": float(random.choice([0.1, 0.2, 0.3, 0.4])),
        "power": float(random.choice([0.35, 0.5, 0.75, 1.0])),
        "gates_from": str(random.choice(["clusters", "patches"])),
        "flips": False,
    }


def main() -> None:
    """Print both errors."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--features", type=int, default=2_048)
    arguments = parser.parse_args()
    counts = {"train": arguments.rows, "validation": 2_000, "test": 4_000}
    parts = {
        name: images(paths, counts[name], seed)
        for seed, (name, paths) in enumerate(fonts().items())
    }
    print(f"{describe()}, seed 0; {counts}, 26 letters, {sum(map(len, fonts().values()))} fonts\n")

    def errors(model: TSConvRidgeClassifier) -> list[float]:
        model.fit(*parts["train"])
        return [100 * (1 - model.score(*parts[name])) for name in ("validation", "test")]

    table = []
    for features in ("auto", arguments.features):
        start = time.perf_counter()
        found = errors(TSConvRidgeClassifier(features))
        seconds = time.perf_counter() - start
        name = "defaults" if features == "auto" else f"defaults, {features:,} features"
        table.append([name, *(f"{e:.2f}" for e in found), f"{seconds:.0f}"])
    random = np.random.default_rng(0)
    tried, start = [], time.perf_counter()
    for _ in range(arguments.draws):
        settings = draw(random)
        tried.append((errors(TSConvRidgeClassifier(arguments.features, **settings)), settings))
        print(f"{tried[-1][0][0]:.2f} % on validation images: {settings}", flush=True)
    best, settings = min(tried, key=lambda t: t[0][0])
    seconds = time.perf_counter() - start
    name = f"best of {arguments.draws}, {arguments.features:,} features"
    table.append([name, *(f"{e:.2f}" for e in best), f"{seconds:.0f}"])
    print(f"\nchosen: {settings}\n")
    print_table(["settings", "validation error, %", "test error, %", "s"], table)


if __name__ == "__main__":
    main()
