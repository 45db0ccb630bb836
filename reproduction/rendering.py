"""Render table 1 for the terminal, in Markdown, in LaTeX and in HTML.

:func:`layout` determines the text of every cell; the four renderers only format it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.box import HEAVY_HEAD
from rich.table import Table
from rich.text import Text

from reproduction import published
from reproduction.experiment import METHODS
from reproduction.files import make_folder, write
from reproduction.pages import render
from reproduction.table1 import TITLES, Entry, Row, columns, group_of

SUPERSCRIPTS = str.maketrans("0123456789+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺")


@dataclass(frozen=True)
class CellText:
    """Texts of a cell."""

    error: str
    depth: str
    best: bool
    published: str = ""
    published_depth: str = ""
    difference: str = ""
    seeds: str = ""
    remark: str = ""
    letter: str = ""  # refers to a remark below the table


@dataclass(frozen=True)
class RowText:
    """Texts of a row."""

    name: str
    cells: list[CellText | None]
    time: str
    published_time: str
    first_of_family: bool  # but not the first row of the table


def layout(table: list[Row]) -> Iterator[RowText]:
    """Yield the texts of every row."""
    letters = notes(table)
    family = ""
    for row in table:
        mine = group_of(row.method)
        cells = [None if e is None else _cell(e, letters) for e in _entries(row, columns(table))]
        yield RowText(
            METHODS[row.method],
            cells,
            "–" if math.isnan(row.time) else f"{row.time:.1f}",
            f"{published.TIME[row.method]:.1f}" if row.method in published.TIME else "",
            bool(family) and mine != family,
        )
        family = mine


def notes(table: list[Row]) -> dict[str, str]:
    """Return a letter for every remark: a, b and so on to z, then aa, bb and so on."""
    entries = [e for row in table for e in _entries(row, columns(table)) if e is not None]
    remarks = dict.fromkeys(e.remark for e in entries if e.remark)
    return {remark: chr(ord("a") + i % 26) * (1 + i // 26) for i, remark in enumerate(remarks)}


def _entries(row: Row, data: list[str]) -> list[Entry | None]:
    """Return the entries of a row in the order of the columns."""
    return [column.get(d) for d in data for column in (row.one_pass, row.asymptotic)]


def _cell(entry: Entry, letters: dict[str, str]) -> CellText:
    """Return the texts of an entry."""
    known = {}
    if entry.paper is not None:
        known = {
            "published": f"{entry.paper.error:.2f}",
            "published_depth": entry.paper.depth,
            "difference": f"{entry.difference:+.2f}".replace("-", "−"),
        }
    several = len(entry.records) > 1
    seeds = f"{len(entry.records)} seeds within {entry.spread:.2f}" if several else ""
    return CellText(
        f"{entry.error:.2f}",
        entry.depth,
        entry.best,
        seeds=seeds,
        remark=entry.remark,
        letter=letters.get(entry.remark, ""),
        **known,
    )


def _titles(table: list[Row]) -> list[str]:
    """Return the titles of the data sets."""
    return [TITLES.get(d, d) for d in columns(table)]


def as_terminal(table: list[Row], narrow: bool = False) -> Table:
    """Return the table for the terminal; ``narrow`` saves columns by more lines."""
    title = "Test error (%) and depth; below, the published value and the difference"
    box, padding = (None, (0, 1, 0, 0)) if narrow else (HEAVY_HEAD, (0, 1))
    view = Table(title=title, box=box, pad_edge=not narrow, padding=padding)
    view.add_column("", no_wrap=True)
    for name in _titles(table):
        view.add_column(f"{name}\none pass", justify="right", no_wrap=True)
        view.add_column("\nat end" if narrow else "\nasymptotic", justify="right", no_wrap=True)
    view.add_column("time\n(paper)", justify="right", no_wrap=True)
    view.caption = "\n".join(f"{letter}: {remark}" for remark, letter in notes(table).items())
    for row in layout(table):
        if row.first_of_family:
            view.add_section()
        name = row.name.replace("TS ", "") if narrow else row.name
        time = f"{row.time}\n({row.published_time})" if row.published_time else row.time
        view.add_row(name, *(_terminal_cell(cell, narrow) for cell in row.cells), time)
    return view


def _terminal_cell(cell: CellText | None, narrow: bool) -> Text:
    """Return a cell for the terminal."""
    if cell is None:
        return Text("")
    error = f"{cell.error}{cell.depth.translate(SUPERSCRIPTS)}{cell.letter}"
    text = Text(error, style="bold" if cell.best else "")
    if cell.published:
        parts = (cell.published, cell.difference)
        against = "\n".join(parts) if narrow else f"({', '.join(parts)})"
        text.append(f"\n{against}", style="dim not bold")
    return text


def as_markdown(table: list[Row]) -> str:
    """Return the table in Markdown, with remarks below it."""
    kinds = ("one pass", "asymptotic")
    head = ["method", *(f"{d}, {kind}" for d in _titles(table) for kind in kinds), "time (paper)"]
    lines = [head, ["---"] * len(head)]
    for row in layout(table):
        time = f"{row.time} ({row.published_time})" if row.published_time else row.time
        lines.append([row.name, *map(_markdown_cell, row.cells), time])
    below = "".join(f"\n<sup>{letter}</sup> {note}  " for note, letter in notes(table).items())
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return body + "\n" + below + "\n" * bool(below)


def _markdown_cell(cell: CellText | None) -> str:
    """Return a cell in Markdown."""
    if cell is None:
        return ""
    error = f"**{cell.error}**" if cell.best else cell.error
    marks = f"{cell.depth} {cell.letter}".strip()
    against = f" ({cell.published}, {cell.difference})" if cell.published else ""
    return f"{error}<sup>{marks}</sup>{against}"


def as_latex(table: list[Row]) -> str:
    """Return the table as a LaTeX tabular, which needs the package booktabs."""
    titles = _titles(table)
    over = [rf"\multicolumn{{2}}{{c}}{{{_latex(d)}}}" for d in titles]
    lines = [rf"\begin{{tabular}}{{l{'rr' * len(titles)}r}}", r"\toprule"]
    lines.append(" & ".join(["", *over, "Time"]) + r" \\")
    lines.append(" & ".join(["", *("one pass & asymptotic" for _ in titles), "(paper)"]) + r" \\")
    for number, row in enumerate(layout(table)):
        if row.first_of_family or number == 0:
            lines.append(r"\midrule")
        time = f"{row.time} ({row.published_time})" if row.published_time else row.time
        cells = [row.name, *map(_latex_cell, row.cells), time.replace("–", "--")]
        lines.append(" & ".join(cells) + r" \\")
    across = 2 * len(titles) + 2
    below = [
        rf"\multicolumn{{{across}}}{{l}}{{\scriptsize {letter}: {_latex(remark)}}} \\"
        for remark, letter in notes(table).items()
    ]
    return "\n".join([*lines, r"\bottomrule", *below, r"\end{tabular}"]) + "\n"


def _latex_cell(cell: CellText | None) -> str:
    """Return a cell in LaTeX."""
    if cell is None:
        return ""
    error = rf"\textbf{{{cell.error}}}" if cell.best else cell.error
    marks = f"{cell.depth} {cell.letter}".strip()
    against = ""
    if cell.published:
        difference = cell.difference.replace("−", "-")
        against = rf" {{\scriptsize ({cell.published}, ${difference}$)}}"
    return rf"{error}\textsuperscript{{{marks}}}{against}"


def _latex(text: str) -> str:
    """Escape the special characters of LaTeX."""
    return "".join(rf"\{c}" if c in "&%$#_{}" else c for c in text)


def as_html(table: list[Row]) -> str:
    """Return the table in HTML, with remarks in its cells."""
    return render("table1.html", data=_titles(table), rows=list(layout(table)))


def save_table(table: list[Row], folder: Path) -> list[Path]:
    """Write ``table1.md``, ``table1.tex`` and ``table1.html``."""
    make_folder(folder)
    renderers = {"md": as_markdown, "tex": as_latex, "html": as_html}
    paths = [folder / f"table1.{kind}" for kind in renderers]
    for path, renderer in zip(paths, renderers.values(), strict=True):
        write(path, renderer(table))
    return paths
