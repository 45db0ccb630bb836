"""Copy ``docs/results/table1.md`` into README, between its two markers.

python docs/fill_readme.py
"""

from __future__ import annotations

from pathlib import Path

BEGIN, END = "<!-- table 1: made by docs/fill_readme.py -->\n", "<!-- end of table 1 -->\n"


def main() -> None:
    folder = Path(__file__).parent
    path = folder.parent / "README.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    table = (folder / "results" / "table1.md").read_text(encoding="utf-8")
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
