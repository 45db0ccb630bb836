"""Adapt pages that are also read outside the site, resolve names, and check what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.util import logging

from docs.builder import commands
from docs.builder.public import homes
from reproduction.figure2 import CAPTION

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
logger = logging.getLogger(__name__)

# Links that lead to folders or files of the repository outside the site: only the text stays.
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\(((?:\.\./)*"
    r"(?:benchmarks/?|benchmarks/results/?|report\.html|\w+\.jsonl\.gz))\)"
)
# Links to the output of benchmarks: these are on one page.
BENCHMARK = re.compile(r"\]\((?:\.\./)+benchmarks/results/(\w+)\.md\)")

TABLE = f"""
## Figure 2

![Figure 2](figure2.png)

{CAPTION}

## Table 1

```{{include}} table1.md
```
"""


def read(app: Any, page: str, source: list[str]) -> None:
    """Change the text of a page before it is parsed (``source-read``)."""
    if page == "measured":
        source[0] = adapted(page, source[0])
    elif page == "results/README":
        source[0] = adapted(page, source[0]).replace("(table1.md)", "(#table-1)") + TABLE
    elif page == "benchmarks":
        source[0] += printed()
    elif page == "commands":
        source[0] += commands.sections()


def adapted(page: str, text: str) -> str:
    """Return a page of the repository with links that hold on the site."""
    up = "../" * page.count("/")
    text = BENCHMARK.sub(lambda match: f"]({up}benchmarks.md#{match[1].replace('_', '-')})", text)
    return OUTSIDE.sub(r"\1", text)


def printed() -> str:
    """Return the output of all benchmarks, a section for each."""
    sections = []
    for path in sorted(RESULTS.glob("*.md")):
        options = ":heading-offset: 1\n:relative-images:\n"
        sections.append(
            f"\n## {path.stem}\n\n```{{include}} ../benchmarks/results/{path.name}\n{options}```\n"
        )
    return "".join(sections)


def collapse(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Show in the sidebar only the branch of the page (``html-page-context``).

    Furo would write the names of all pages on every page, which takes most of the time of a build.
    """
    whole = context.get("toctree")
    if whole is not None:
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Find a name under which something is exported, but not documented (``missing-reference``)."""
    if node.get("refdomain") != "py":
        return None
    target = str(node.get("reftarget", ""))
    names = _names(env)
    for start in (target, f"{node.get('py:module')}.{target}"):
        owner, _, member = start.rpartition(".")
        home = names.get(start) or (f"{names[owner]}.{member}" if owner in names else None)
        if home is not None and home != target:
            domain = env.get_domain("py")
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, node["reftype"], home, node, content
            )
    return None


def _names(env: Any) -> dict[str, str]:
    if not hasattr(env, "public_names"):
        env.public_names = homes()
    return env.public_names


def check_everything_is_documented(app: Any, env: Any) -> None:
    """Warn, which ends the build, of public names without an entry (``env-check-consistency``)."""
    documented = env.get_domain("py").objects
    for name in sorted({*homes().values()} - {*documented}):
        logger.warning("%s is public but has no entry in the reference", name)
