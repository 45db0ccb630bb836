"""Copy the comparable cells of ``docs/results/table1.md`` into README, between its two markers.

python docs/fill_readme.py
"""

from __future__ import annotations

import re
from pathlib import Path

BEGIN, END = "<!-- table 1: made by docs/fill_readme.py -->\n", "<!-- end of table 1 -->\n"
NOTED = re.compile(r"<sup>[^<]*[a-z]</sup>")  # a cell with a remark, such as "5 epochs"


def like_for_like(table: str) -> str:
    """Return a table without cells that have a remark, and without rows and columns left empty."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, rule, *body = rows
    body = [[row[0], *("" if NOTED.search(c) else c for c in row[1:])] for row in body]
    last = len(head) - 1  # the time
    kept = [i for i in range(len(head)) if i in (0, last) or any(row[i] for row in body)]
    body = [row for row in body if any(row[i] for i in kept[1:-1])]
    return "".join("| " + " | ".join(row[i] for i in kept) + " |\n" for row in (head, rule, *body))


def main() -> None:
    folder = Path(__file__).parent
    path = folder.parent / "README.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    table = like_for_like((folder / "results" / "table1.md").read_text(encoding="utf-8"))
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
