"""SVMs with the equivalent kernels on MNIST, CIFAR-10 and SVHN (without ``extra``): test error, time and peak memory.

    TENSORSWITCH_DATA=DIR python benchmarks/svm.py [mnist cifar10 svhn]

For each data set and kernel the paper's best depth; PCA dimension and C by validation error on the whole training set, among those listed below.
Results are added to ``benchmarks/results/svm.md`` one by one, and what stands there already is skipped.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import _datasets
from _measure import describe, peak_resident_bytes
from tensorswitch.estimators import TSKernelSVC, kernel_svc_grid

RESULTS = Path(__file__).parent / "results" / "svm.md"
BEST = {
    "mnist": {"ts": (3, 1.40), "ss": (5, 1.40)},
    "svhn": {"ts": (1, 20.38), "ss": (1, 21.60)},
    "cifar10": {"ts": (2, 43.60), "ss": (7, 43.18)},
}
COMPONENTS = {"mnist": (32, 64, 128), "cifar10": (64, 256), "svhn": (64, 128)}
PENALTIES = {"mnist": (1, 10), "cifar10": (1, 10), "svhn": (1, 10)}
MEMORY = {"mnist": 3, "cifar10": 3, "svhn": 7}  # gigabytes; the two largest classes of SVHN have 23,000 rows
HEADER = "| data | kernel | depth | PCA | C | test error % | paper % | fit s | predict s | peak GB | support vectors |\n" + "|---" * 11 + "|\n"


def main() -> None:
    if not RESULTS.exists():
        RESULTS.write_text(f"Made by `benchmarks/svm.py` (seed 0); {describe()}.\n\n{HEADER}")
    for name in sys.argv[1:] or BEST:
        for kind, (depth, paper) in BEST[name].items():
            if f"| {name} | {kind.upper()} |" not in RESULTS.read_text():
                run(name, kind, depth, paper)


def run(name: str, kind: str, depth: int, paper: float) -> None:
    trials = {}
    memory = MEMORY[name]
    for components in COMPONENTS[name]:
        data = _datasets.load(name, components)
        rows = (data.train, data.train_labels, data.validation, data.validation_labels)
        errors = kernel_svc_grid(*rows, kinds=[kind], depths=[depth], Cs=PENALTIES[name], n_jobs=2, max_memory_gb=memory)
        trials.update({(components, key[2]): error for key, error in errors.items()})
        print(name, kind, depth, {k: f"{100 * e:.2f}" for k, e in trials.items() if k[0] == components}, flush=True)
    components, penalty = min(trials, key=lambda key: trials[key])
    data = _datasets.load(name, components)
    start = time.perf_counter()
    model = TSKernelSVC(kind, depth, penalty, normalize=True, n_jobs=2, max_memory_gb=memory).fit(data.train, data.train_labels)
    fitted = time.perf_counter()
    error = 100 * (model.predict(data.test) != data.test_labels).mean()
    done = time.perf_counter()
    cells = [name, kind.upper(), depth, components, penalty, f"{error:.2f}", f"{paper:.2f}", f"{fitted - start:.0f}", f"{done - fitted:.0f}"]
    row = "| " + " | ".join(map(str, [*cells, f"{peak_resident_bytes() / 1e9:.1f}", len(model.support_)])) + " |\n"
    with RESULTS.open("a") as file:
        file.write(row)
    print(row, flush=True)


if __name__ == "__main__":
    main()
