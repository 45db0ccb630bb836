"""One self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from tensorswitch._files import write_text

STYLE = """
:root { color-scheme: light; } * { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
h1, h2 { font-weight: 600; line-height: 1.2; } h2 { margin-top: 2.5rem; } code { font-size: .85em; overflow-wrap: anywhere; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .45rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; vertical-align: top; }
th[colspan] { text-align: center; } th:first-child, td:first-child { text-align: left; } td.left { text-align: left; }
.best { font-weight: 700; } tr.rule td { border-top: 2px solid #888; }
td small { display: block; color: #666; font-size: .75rem; font-weight: 400; }
th.sorts { cursor: pointer; } th.sorts::after { content: " ↕"; color: #999; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; } figcaption, .small { color: #666; font-size: .9rem; }
sup { font-size: .7em; } @media (max-width: 40rem) { body { margin: 1rem auto; } th, td { padding: .3rem .4rem; font-size: .85rem; } }
"""
# Sorts the rows of a table by the column whose head is clicked, numbers as numbers.
SORT = """
for (const head of document.querySelectorAll("th.sorts")) head.addEventListener("click", () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex, up = head.dataset.up !== "1";
  head.dataset.up = up ? "1" : "0";
  const key = row => { const text = row.cells[at].textContent.trim(); return /^[-+]?[\\d.]+$/.test(text) ? parseFloat(text) : text; };
  const rows = [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b), mixed = typeof x !== typeof y;
    return (mixed ? (typeof x === "number" ? -1 : 1) : (x < y ? -1 : x > y ? 1 : 0)) * (up ? 1 : -1);
  });
  body.append(...rows);
});
"""


def write_page(path: Path, title: str, parts: Iterable[str]) -> None:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}<script>{SORT}</script>"
    write_text(path, f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>')


def figure_part(title: str, image: str, caption: str) -> str:
    return f"<h2>{escape(title)}</h2><figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
