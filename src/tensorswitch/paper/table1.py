"""The paper's table 1 from records of experiments: for each method and data set the model of least validation error, its test error after one pass
and in the end, beside the published values; and in each of four forms.

Where a configuration was run with several seeds, validation and test errors are means over them.
Time is the mean, over configurations, of an epoch (of the whole fit, without epochs) against the SS model of the same shape.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.box import HEAVY_HEAD
from rich.table import Table
from rich.text import Text

from tensorswitch._files import make_folder, write_text
from tensorswitch.experiments import METHODS, Result
from tensorswitch.paper import published
from tensorswitch.records import Record

__all__ = ["Entry", "Row", "as_html", "as_latex", "as_markdown", "as_terminal", "rows", "save"]

NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "svhn": "SVHN", "digits": "digits", "fashion-mnist": "Fashion-MNIST"}
SUPERSCRIPTS = str.maketrans("0123456789+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺")


@dataclass
class Entry:
    """A cell: the error in percent, what it was made by, and the published value."""

    error: float
    spread: float  # from the least to the greatest of the seeds
    depth: str
    records: list[Record]  # one for each seed
    paper: published.Cell | None
    epochs: int | None  # all that were run; None for one pass
    best: bool = False  # the least of its kind of model in its column

    @property
    def difference(self) -> float:
        return math.nan if self.paper is None else self.error - self.paper.error

    @property
    def remark(self) -> str:
        """What sets it apart from the paper's protocol."""
        first = self.records[0].experiment
        remarks = []
        if first.data == published.SEEN_WITH_EXTRA and first.family != "svm" and not first.extra:
            remarks.append("without extra images")
        if self.epochs is not None and first.family != "svm" and self.epochs < published.EPOCHS.get(first.data, 0):
            remarks.append(f"{self.epochs} epochs")
        return ", ".join(remarks)


@dataclass
class Row:
    method: str
    one_pass: dict[str, Entry]  # by data
    asymptotic: dict[str, Entry]
    time: float


def rows(records: Iterable[Record]) -> list[Row]:
    """The table; methods without records are left out."""
    records = list(records)
    failed = {_configuration(r) for r in records if r.result is None}
    good = [r for r in records if r.result is not None and _configuration(r) not in failed]  # a model that fails for some seeds is none to choose
    table = []
    for method in [*published.ROWS, *(m for m in METHODS if m not in published.ROWS)]:
        mine = [r for r in good if r.experiment.method == method]
        if not mine:
            continue
        one_pass, asymptotic = {}, {}
        for data in dict.fromkeys(r.experiment.data for r in mine):
            of_data = [r for r in mine if r.experiment.data == data]
            first = _choose(of_data, lambda r: (r.one_pass_validation, r.one_pass), published.ONE_PASS.get(method, {}).get(data))
            longest = [r for r in of_data if r.experiment.family == "svm" or r.experiment.epochs > 1]
            last = _choose(longest, lambda r: (r.best_validation, r.best), published.ASYMPTOTIC.get(method, {}).get(data), in_the_end=True)
            if first is not None:
                one_pass[data] = first
            if last is not None:
                asymptotic[data] = last
        table.append(Row(method, one_pass, asymptotic, _time(mine, good)))
    _mark_best(table)
    return table


def columns(table: list[Row]) -> list[str]:
    """The data sets, the paper's first."""
    seen = dict.fromkeys(data for row in table for data in (*row.one_pass, *row.asymptotic))
    return [d for d in published.DATA if d in seen] + [d for d in seen if d not in published.DATA]


def _choose(
    records: list[Record], errors: Callable[[Result], tuple[float, float]], paper: published.Cell | None, in_the_end: bool = False
) -> Entry | None:
    """The configuration of least validation error; in the end, only the seeds that were run longest count."""
    groups: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in sorted(records, key=lambda r: r.experiment.epochs):
        seeds = groups[_configuration(record)]
        if in_the_end and any(r.experiment.epochs < record.experiment.epochs for r in seeds.values()):
            seeds.clear()
        seeds[record.experiment.seed] = record
    best: tuple[float, Entry] | None = None
    for seeds in groups.values():
        pairs = [errors(r.result) for r in seeds.values() if r.result is not None]
        validation, test = (100 * sum(p[i] for p in pairs) / len(pairs) for i in (0, 1))
        validation = math.inf if math.isnan(validation) else validation
        if math.isnan(test) or (best is not None and validation >= best[0]):
            continue
        chosen = list(seeds.values())
        epochs = chosen[0].experiment.epochs if in_the_end else None
        spread = 100 * (max(p[1] for p in pairs) - min(p[1] for p in pairs))
        best = (validation, Entry(test, spread, _depth(chosen[0]), chosen, paper, epochs))
    return best and best[1]


def _configuration(record: Record) -> str:
    """What differs in more than the seed and how long it was run."""
    return repr({k: v for k, v in record.experiment.settings.items() if k not in ("seed", "epochs")})


def _depth(record: Record) -> str:
    experiment, result = record.experiment, record.result
    assert result is not None
    return f"{sum(experiment.convolutions)}+{experiment.depth}" if experiment.family == "cnn" else str(result.depth)


def _time(mine: list[Record], everything: list[Record]) -> float:
    """Against SS on the same data with the same inputs and shape."""

    def shape(record: Record) -> tuple[object, ...]:
        e = record.experiment
        family = "mlp" if e.family == "rr" else e.family
        network = () if family == "svm" else (e.depth, e.width, e.batch_size)
        blocks = (e.convolutions, e.channels) if family == "cnn" else ()
        return (family, e.data, e.extra, e.components, *network, *blocks, record.made.get("threads"))

    def least(records: list[Record]) -> dict[tuple[object, ...], float]:
        seconds: dict[tuple[object, ...], float] = {}
        for record in records:
            if record.result is not None:
                seconds[shape(record)] = min(record.result.seconds, seconds.get(shape(record), math.inf))
        return seconds

    ours, reference = least(mine), least([r for r in everything if r.experiment.kind == "ss"])
    ratios = [seconds / reference[key] for key, seconds in ours.items() if key in reference]
    return sum(ratios) / len(ratios) if ratios else math.nan


def _mark_best(table: list[Row]) -> None:
    for family in ("svm", "mlp", "cnn"):
        mine = [r for r in table if _family(r.method) == family]
        for data in columns(table):
            for column in ("one_pass", "asymptotic"):
                entries = [e for r in mine if (e := getattr(r, column).get(data)) is not None]
                for entry in entries:
                    entry.best = entry.error == min(e.error for e in entries)


def _family(method: str) -> str:
    return method.split("-")[0] if method.startswith(("svm", "cnn")) else "mlp"


def _cells(row: Row, data: list[str]) -> list[Entry | None]:
    return [column.get(d) for d in data for column in (row.one_pass, row.asymptotic)]


def _notes(table: list[Row]) -> dict[str, str]:
    """A letter for each remark."""
    remarks = dict.fromkeys(e.remark for row in table for e in _cells(row, columns(table)) if e is not None and e.remark)
    return {remark: chr(ord("a") + i % 26) * (1 + i // 26) for i, remark in enumerate(remarks)}


def _time_text(row: Row) -> str:
    ours = "–" if math.isnan(row.time) else f"{row.time:.1f}"
    return f"{ours} ({published.TIME[row.method]:.1f})" if row.method in published.TIME else ours


def _against(entry: Entry) -> str:
    """ "2.99, +0.02": the published value, and how far this one is from it."""
    return "" if entry.paper is None else f"{entry.paper.error:.2f}, {entry.difference:+.2f}".replace("-", "−")


def as_terminal(table: list[Row], narrow: bool = False) -> Table:
    """Below each error the paper's value and the difference, one above the other where there is little room."""
    data = columns(table)
    title = "Test error, %, with the depth; below it the paper's, and the difference"
    view = Table(title=title, box=None if narrow else HEAVY_HEAD, pad_edge=not narrow, padding=(0, 1, 0, 0) if narrow else (0, 1))
    view.add_column("", no_wrap=True)
    for d in data:
        view.add_column(f"{NAMES.get(d, d)}\none pass", justify="right", no_wrap=True)
        view.add_column("\nin the end" if not narrow else "\nat end", justify="right", no_wrap=True)
    view.add_column("time\n(paper)", justify="right", no_wrap=True)
    notes = _notes(table)
    view.caption = "\n".join(f"{letter}: {remark}" for remark, letter in notes.items())
    family = ""
    for row in table:
        if family and _family(row.method) != family:
            view.add_section()
        family = _family(row.method)
        texts = []
        for entry in _cells(row, data):
            if entry is None:
                texts.append(Text(""))
                continue
            mark = notes.get(entry.remark, "")
            text = Text(f"{entry.error:.2f}{entry.depth.translate(SUPERSCRIPTS)}{mark}", style="bold" if entry.best else "")
            if entry.paper is not None:
                against = _against(entry).replace(", ", "\n") if narrow else f"({_against(entry)})"
                text.append(f"\n{against}", style="dim not bold")
            texts.append(text)
        view.add_row(METHODS[row.method].replace("TS ", "") if narrow else METHODS[row.method], *texts, _time_text(row).replace(" ", "\n"))
    return view


def as_markdown(table: list[Row]) -> str:
    data = columns(table)
    head = ["method", *(f"{NAMES.get(d, d)}, {c}" for d in data for c in ("one pass", "asymptotic")), "time (paper)"]
    lines, notes = [head, ["---"] * len(head)], _notes(table)
    for row in table:
        cells = []
        for entry in _cells(row, data):
            if entry is None:
                cells.append("")
                continue
            error = f"**{entry.error:.2f}**" if entry.best else f"{entry.error:.2f}"
            against = f" ({_against(entry)})" if entry.paper is not None else ""
            cells.append(f"{error}<sup>{entry.depth}{' ' + notes[entry.remark] if entry.remark else ''}</sup>{against}")
        lines.append([METHODS[row.method], *cells, _time_text(row)])
    below = "".join(f"\n<sup>{letter}</sup> {remark}  " for remark, letter in notes.items())
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n" + below + "\n" * bool(below)


def as_latex(table: list[Row]) -> str:
    """A tabular that needs the package booktabs."""
    data = columns(table)
    lines = [rf"\begin{{tabular}}{{l{'rr' * len(data)}r}}", r"\toprule"]
    lines.append(" & ".join(["", *(rf"\multicolumn{{2}}{{c}}{{{_latex(NAMES.get(d, d))}}}" for d in data), "Time"]) + r" \\")
    lines.append(" & ".join(["", *("one pass & asymptotic" for _ in data), "(paper)"]) + r" \\")
    notes = _notes(table)
    family = ""
    for row in table:
        if _family(row.method) != family:
            lines.append(r"\midrule")
        family = _family(row.method)
        cells = []
        for entry in _cells(row, data):
            if entry is None:
                cells.append("")
                continue
            error = rf"\textbf{{{entry.error:.2f}}}" if entry.best else f"{entry.error:.2f}"
            against = "" if entry.paper is None else rf" {{\scriptsize ({entry.paper.error:.2f}, ${entry.difference:+.2f}$)}}"
            mark = f" {notes[entry.remark]}" if entry.remark else ""
            cells.append(rf"{error}\textsuperscript{{{entry.depth}{mark}}}{against}")
        lines.append(" & ".join([METHODS[row.method], *cells, _time_text(row).replace("–", "--")]) + r" \\")
    across = 2 * len(data) + 2
    below = [rf"\multicolumn{{{across}}}{{l}}{{\scriptsize {letter}: {_latex(remark)}}} \\" for remark, letter in notes.items()]
    return "\n".join([*lines, r"\bottomrule", *below, r"\end{tabular}"]) + "\n"


def as_html(table: list[Row]) -> str:
    data = columns(table)
    over = "".join(f'<th colspan="2">{escape(NAMES.get(d, d))}</th>' for d in data)
    under = "<th>one pass</th><th>asymptotic</th>" * len(data)
    lines = [f"<thead><tr><th></th>{over}<th>time</th></tr><tr><th></th>{under}<th></th></tr></thead><tbody>"]
    family = ""
    for row in table:
        rule = ' class="rule"' if family and _family(row.method) != family else ""
        family = _family(row.method)
        cells = []
        for entry in _cells(row, data):
            if entry is None:
                cells.append("<td></td>")
                continue
            notes = [f"paper {entry.paper.error:.2f}<sup>{entry.paper.depth}</sup>", _against(entry).split(", ")[1]] if entry.paper else []
            seeds = f"{len(entry.records)} seeds within {entry.spread:.2f}" if len(entry.records) > 1 else ""
            notes = [", ".join(notes), seeds, escape(entry.remark)]
            small = "<br>".join(n for n in notes if n)
            error = f'<span class="best">{entry.error:.2f}</span>' if entry.best else f"{entry.error:.2f}"
            cells.append(f"<td>{error}<sup>{entry.depth}</sup><small>{small}</small></td>")
        paper = f"<small>paper {published.TIME[row.method]:.1f}</small>" if row.method in published.TIME else ""
        time = "–" if math.isnan(row.time) else f"{row.time:.1f}"
        lines.append(f"<tr{rule}><td>{METHODS[row.method]}</td>{''.join(cells)}<td>{time}{paper}</td></tr>")
    return f'<div class="table"><table id="table1">{"".join(lines)}</tbody></table></div>'


def save(table: list[Row], folder: Path) -> list[Path]:
    """Write ``table1.md``, ``table1.tex`` and ``table1.html``."""
    make_folder(folder)
    texts = {"table1.md": as_markdown(table), "table1.tex": as_latex(table), "table1.html": as_html(table)}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def _latex(text: str) -> str:
    return "".join(rf"\{c}" if c in "&%$#_{}" else c for c in text)
