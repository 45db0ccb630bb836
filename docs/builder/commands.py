"""The commands of ``tensorswitch`` with their options, as Markdown."""

from __future__ import annotations

from typing import Any

import typer

from tensorswitch.cli import app


def sections() -> str:
    """Return a section for each command."""
    return "".join(_section(name, command) for name, command in _commands(_top(), "tensorswitch"))


def _top() -> Any:
    return typer.main.get_command(app)


def _commands(group: Any, path: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, command in sorted(group.commands.items()):
        here = f"{path} {name}"
        found += _commands(command, here) if hasattr(command, "commands") else [(here, command)]
    return found


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p not in arguments and "--help" not in p.opts]
    usage = " ".join([name, *(p.name.upper() for p in arguments)])
    rows = [f"| `{p.name.upper()}` | {_cell(p)} |" for p in arguments]
    for option in options:
        names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        rows.append(f"| {names} | {_cell(option)} |")
    table = "\n".join(["| | |", "|---|---|", *rows]) if rows else ""
    return f"\n## {name}\n\n    {usage} [OPTIONS]\n\n{(command.help or '').strip()}\n\n{table}\n"


def _cell(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    shown = isinstance(default, int | float | str) and not isinstance(default, bool)
    return f"{text} Default: `{default}`." if shown else text
