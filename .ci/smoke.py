"""Use an installed tensorswitch as a stranger would: the examples of README, then a table.

    python .ci/smoke.py

Only what the wheel brings is used, in a folder without the sources.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def run(folder: str, *arguments: str) -> None:
    """Run Python in a folder, with warnings as they are, and stop at a failure."""
    print("$ python", *(a if "\n" not in a else "<example>" for a in arguments), flush=True)
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True)


def main() -> None:
    """Run everything in a temporary folder."""
    command = ("-m", "tensorswitch")
    with tempfile.TemporaryDirectory() as folder:
        run(folder, "-c", "import tensorswitch; print(tensorswitch.__file__)")
        for example in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S):
            run(folder, "-c", example)
        rows = [f"{n},{n % 7},{'ab'[n % 7 > 3]}" for n in range(200)]
        Path(folder, "table.csv").write_text("\n".join(["key,value,kind", *rows]) + "\n")
        table = ("--data", "table.csv", "--target", "kind", "--id", "key")
        run(folder, *command, "--version")
        run(folder, *command, "train", *table, "--out", "run")
        run(folder, *command, "predict", "run", "table.csv", "--out", "predictions.csv")
        if len(Path(folder, "predictions.csv").read_text().splitlines()) != 201:
            sys.exit("predictions.csv does not have a line for each row")


if __name__ == "__main__":
    main()
