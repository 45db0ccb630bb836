"""Copy the comparable cells of ``docs/results/table1.md`` into README, between its two markers.

python docs/fill_readme.py

Below them come the best results of this library that are not in the paper, from the output of
``benchmarks/images.py``, ``benchmarks/kernel_ridge.py`` and ``benchmarks/ridge.py``.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean

BEGIN, END = "<!-- table 1: made by docs/fill_readme.py -->\n", "<!-- end of table 1 -->\n"
NOTED = re.compile(r" ([a-z])</sup>")  # a cell with a remark
REMARK = re.compile(r"^<sup>([a-z])</sup> (\d+ epochs)\s*$", re.MULTILINE)


def like_for_like(table: str) -> str:
    """Return a table without cells that are not comparable, and rows and columns left empty.

    A cell with a remark is not comparable, unless it says that there were fewer epochs than in the
    paper, which takes the place of its letter.
    """
    for letter, epochs in REMARK.findall(table):
        table = table.replace(f" {letter}</sup>", f", {epochs}</sup>")
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, rule, *body = rows
    body = [[row[0], *("" if NOTED.search(c) else c for c in row[1:])] for row in body]
    last = len(head) - 1  # the time
    kept = [i for i in range(len(head)) if i in (0, last) or any(row[i] for row in body)]
    body = [row for row in body if any(row[i] for i in kept[1:-1])]
    return "".join("| " + " | ".join(row[i] for i in kept) + " |\n" for row in (head, rule, *body))


def best_of_this_library(results: Path) -> str:
    """Return a table of errors that the paper's methods are not behind."""
    names = {"mnist": "MNIST", "cifar10": "CIFAR-10", "svhn": "SVHN"}
    lines = ["| the best of this library, not in the paper | " + " | ".join(names.values()) + " |"]
    lines.append("| --- " * (1 + len(names)) + "|")
    found: dict[str, dict[int, list[float]]] = {data: defaultdict(list) for data in names}
    with (results / "images.csv").open(encoding="utf-8") as file:
        for part, data, _, features, _, _, error, *_ in csv.reader(file):
            if part == "accuracy":
                found[data][int(features)].append(float(error))
    cells = [_cell(errors) for errors in found.values()]
    lines.append(f"| convolution and ridge, one pass | {' | '.join(cells)} |")
    kernel = _row(results / "kernel_ridge.md", r"\|\s*(ss|ts|ntk), depth ")  # what was chosen
    lines.append(f"| kernel ridge, no settings | {float(kernel[1]):.2f} |  |  |")
    ridge = _row(results / "ridge.md", r"\| mnist \| matrix-free \| all \| 64 \| 4096 \|")
    lines.append(f"| ridge, 4,096 gates | {float(ridge[8]):.2f} |  |  |")
    return "\n".join(lines) + "\n"


def _row(path: Path, start: str) -> list[str]:
    """Return the cells of the only row of a file that starts so."""
    lines = path.read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if re.match(start, line))
    return [cell.strip() for cell in row.strip("|").split("|")]


def _cell(errors: dict[int, list[float]]) -> str:
    """Return the error of the most features, as a mean over seeds."""
    features = max(errors)
    seeds = f", {len(errors[features])} seeds" if len(errors[features]) > 1 else ""
    return f"{mean(errors[features]):.2f} ({features:,} features{seeds})"


def main() -> None:
    folder = Path(__file__).parent
    path = folder.parent / "README.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    table = like_for_like((folder / "results" / "table1.md").read_text(encoding="utf-8"))
    best = best_of_this_library(folder.parent / "benchmarks" / "results")
    path.write_text(f"{before}{BEGIN}\n{table}\n{best}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
