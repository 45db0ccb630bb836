"""``report.html``: the table, the figures, every run and how to repeat it, on one page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from pathlib import Path

from tensorswitch._figures import MISSING, can_draw, embedded
from tensorswitch._live import title
from tensorswitch._machine import describe
from tensorswitch._page import figure_part, write_page
from tensorswitch.experiments import Experiment
from tensorswitch.history import percent
from tensorswitch.paper import NoResultsError, figure2, figure4, figure5, table1
from tensorswitch.records import Record

__all__ = ["command", "of_the_table", "write"]

HEADER = ("run", "one pass, %", "best, %", "at epoch", "seconds", "day", "command")


def command(experiment: Experiment) -> str:
    """What repeats it: the settings that are not the usual ones."""
    usual = Experiment(data=experiment.data, method=experiment.method)
    words = [f"data={experiment.data}", f"method={experiment.method}"]
    for name, value in experiment.settings.items():
        if name not in ("data", "method", "fingerprint") and value != getattr(usual, name):
            words.append(f"{name}={str(list(value)).replace(' ', '') if isinstance(value, tuple) else str(value).lower()}")
    return shlex.join(["tensorswitch", "run", *words])


def write(path: Path, records: list[Record], left_out: Iterable[str], what: str) -> None:
    """The parts for which there are results."""
    parts = []
    if rows := table1.rows(of_the_table(records)):
        parts += ["<h2>Table 1</h2>", table1.as_html(rows), f'<p class="small">{NOTE}</p>']
    parts += _figures(records)
    if missing := list(left_out):
        parts.append("<h2>Left out</h2><ul>" + "".join(f"<li>{escape(m)}</li>" for m in missing) + "</ul>")
    parts += ["<h2>Every run</h2>", '<p class="small">A click on the head of a column sorts by it.</p>', _runs(records)]
    machines = dict.fromkeys(describe(r.made) for r in records if "machine" in r.made)
    parts.append(f'<h2>How it was made</h2><p class="small"><code>{escape(what)}</code><br>{"<br>".join(map(escape, machines))}</p>')
    write_page(path, "Tensor Switching networks: the paper, reproduced", parts)


def _figures(records: list[Record]) -> list[str]:
    if not can_draw():
        return [f"<p>{MISSING.capitalize()}</p>"]
    parts = [figure_part("Figure 2", embedded(figure2.draw(), "kernels against the angle"), figure2.CAPTION)]
    for name, module in (("Figure 4", figure4), ("Figure 5", figure5)):
        with suppress(NoResultsError):
            parts.append(figure_part(name, embedded(module.draw(records), name), module.CAPTION))
    return parts


NOTE = (
    "Test errors in percent, with the depth of the model of least validation error (of a CNN: convolutions + layers above); below each the paper's "
    "value and the difference. Bold is the best of its kind. Where a configuration was run with several seeds it is their mean. Time is that of an "
    "epoch, or of the whole fit where there are no epochs, against the SS model of the same shape, averaged over configurations."
)


def of_the_table(records: list[Record]) -> list[Record]:
    """The small networks of figure 5 are not of the table's grid."""
    return [r for r in records if not (r.experiment.family == "mlp" and r.experiment.width == figure5.UNITS)]


def _runs(records: list[Record]) -> str:
    lines = []
    for record in records:
        result = record.result
        if result is None:
            cells = ["–", "–", "–", "–"]
        else:
            cells = [percent(result.one_pass), percent(result.best), str(result.best_epoch or "–")]
            cells.append(f"{result.seconds:.1f}")
        error = f"<small>failed: {escape(str(record.error))}</small>" if record.error else ""
        day = str(record.made.get("date", ""))[:10]
        body = "".join(f"<td>{c}</td>" for c in [*cells, day])
        repeat = escape(command(record.experiment))
        lines.append(f'<tr><td>{escape(title(record.experiment))}{error}</td>{body}<td class="left"><code>{repeat}</code></td></tr>')
    head = "".join(f'<th class="sorts">{h}</th>' for h in HEADER)
    return f'<div class="table"><table id="runs"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
