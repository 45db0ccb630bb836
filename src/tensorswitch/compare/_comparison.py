"""A comparison of learners: the same rows for all, and one record for each.

An interrupted comparison can be resumed: finished learners, and finished folds of unfinished ones,
are not repeated.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from tensorswitch._checks import check_seed
from tensorswitch._files import make_folder, only_one, write_text
from tensorswitch.compare._fitting import Result, class_factors, default_components, fit_learner
from tensorswitch.compare._learners import (
    BASELINES,
    Learner,
    build,
    chosen_learners,
    estimated_seconds,
    innermost,
)
from tensorswitch.compare._metrics import METRICS, OF_THRESHOLDS, Metric, metric_name
from tensorswitch.compare._predictor import can_save
from tensorswitch.compare._problem import Parts, Problem, load_problem
from tensorswitch.compare._splits import FOLDS, Split, divided, parsed

MODELS = "models"
Watch = Callable[[str, int, int, str], None]


def machine() -> dict[str, Any]:
    """Return processor, threads, cores and versions, which times depend on."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        lines = (line.split(":") for line in cpuinfo.read_text().splitlines() if ":" in line)
        model = next((v.strip() for k, v, *_ in lines if k.strip() == "model name"), model)
    about = {"machine": model, "threads": torch.get_num_threads(), "cores": joblib.cpu_count()}
    return {**about, "torch": torch.__version__, "python": platform.python_version()}


@dataclass
class Record:
    """The results of one learner, one for each split of the rows, in a file of its own.

    ``name`` is that of the file and has a hash of the ``settings`` that the results depend on;
    ``label`` and ``about`` are what tables and the report call the learner.
    """

    name: str
    learner: str
    label: str
    about: str
    own: bool
    settings: dict[str, Any]
    folds: int
    metric: str = ""
    results: list[Result] = field(default_factory=list)
    failure: str | None = None
    made: dict[str, Any] = field(default_factory=dict)
    skipped: str = ""  # why it was not run

    def read(self, folder: Path) -> Record:
        """Take over the results of an earlier run; its failures are forgotten."""
        path = folder / f"{self.name}.json"
        if not path.exists():
            return self
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            self.results = [Result(**entry) for entry in content["results"]]
            if not all(isinstance(r.metrics["error"], float | int) for r in self.results):
                raise TypeError("errors must be numbers")
            self.made = dict(content["made"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{path} is not a valid result of a comparison ({error})"
            raise ValueError(f"{what}; delete it to run the learner again") from error
        return self

    def write(self, folder: Path) -> None:
        """Write the record, atomically."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.made = {"date": now, **machine()}
        write_text(folder / f"{self.name}.json", json.dumps(asdict(self)))

    @property
    def complete(self) -> bool:
        """Whether all splits are done."""
        return len(self.results) == self.folds

    @property
    def baseline(self) -> bool:
        """Whether nothing is learned."""
        return self.learner in BASELINES

    @property
    def error(self) -> float:
        """Mean test error: the share of wrong rows, or 1 − R²; NaN if the learner failed."""
        return self.mean("error") if self.complete else math.nan

    @property
    def rank(self) -> tuple[float, float]:
        """By which records are sorted: the metric, and the log-loss where it is the same."""
        value, loss = self.mean(self.by.measure), self.mean("log_loss")
        if math.isnan(self.error) or math.isnan(value):
            return math.inf, math.inf
        return round(-value if self.by.more else value, 12), math.inf if math.isnan(loss) else loss

    @property
    def by(self) -> Metric:
        """The metric that it is ranked by."""
        return METRICS[self.metric]

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the splits where it is defined, or NaN."""
        return float(np.mean(self._known(measure) or math.nan))

    def _known(self, measure: str) -> list[float]:
        values = (r.metrics.get(measure) for r in self.results)
        return [v for v in values if v is not None and not math.isnan(v)]

    @property
    def spread(self) -> float:
        """Standard error of the metric; NaN for one split, but for the share of wrong rows."""
        values = self._known(self.by.measure)
        if len(values) > 1:
            return float(np.std(values, ddof=1) / math.sqrt(len(values)))
        if self.results and self.metric == "error":
            rows = int(np.sum(self.results[0].metrics["confusion"]))  # of a binomial share
            return math.sqrt(max(self.error * (1 - self.error), 0.0) / rows)
        return math.nan

    @property
    def seconds(self) -> float:
        """Mean time of a fit."""
        return float(np.mean([r.fit_seconds for r in self.results] or math.nan))

    @property
    def summary(self) -> str:
        """The result in a few words."""
        if self.failure is not None:
            return "failed"
        if not self.results:
            return ""
        text = self.by.text(self.mean(self.by.measure), 1)
        return f"{text} % {self.by.label}" if self.by.percent else f"{self.by.label} {text}"


@dataclass
class Comparison:
    """Results of several learners on one problem.

    Parameters
    ----------
    problem : Problem
        The problem.
    learners : dict of str to Learner
        The learners by name.
    records : list of Record
        One for each learner.
    splits : list of tuple of ndarray
        Training and test rows.
    folder : Path
        Where the records are, with the models of the first split in ``models``.
    about : dict
        ``components``, ``seed`` and, by name of the learner, ``settings``.
    how : str
        How the rows were divided, if there are several splits.

    Examples
    --------
    >>> import tempfile
    >>> from tensorswitch.compare import compare
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare("digits", ["linear"], folder)
    >>> [record.label for record in found.ranked]
    ['linear model', 'most frequent class']
    """

    problem: Problem
    learners: dict[str, Learner]
    records: list[Record]
    splits: list[Split]
    folder: Path
    about: dict[str, Any]
    how: str

    @property
    def ranked(self) -> list[Record]:
        """The records, the best by the metric first; those that failed are last."""
        return sorted(self.records, key=lambda r: r.rank)

    @property
    def failed(self) -> list[Record]:
        """The records of learners that failed."""
        return [r for r in self.records if r.failure is not None]

    def model_path(self, record: Record) -> Path:
        """Return where the model of the first split of a record is, if it is of this library."""
        return self.folder / MODELS / f"{record.name}.safetensors"

    def seconds_left(self, record: Record) -> float:
        """Return about how long a learner still takes, by its past fits or its usual costs."""
        count = record.folds - len(record.results)
        if record.results:
            return count * record.seconds
        rows: Any = self.problem.rows
        inputs = len(rows.columns) if self.problem.is_table else math.prod(np.shape(rows)[1:])
        return count * estimated_seconds(record.learner, len(self.splits[0][0]), inputs)

    def run(self, watch: Watch | None = None, budget: float = math.inf) -> None:
        """Run what is not done, writing each record after each fold.

        Parameters
        ----------
        watch : callable, optional
            ``watch(name, done, total, note)`` is called before and after every fit.
        budget : float, optional
            Seconds. Learners that would take longer than what is left of it are not run.
        """
        start = time.monotonic()
        make_folder(self.folder / MODELS)
        tell = watch or (lambda *_: None)
        encoded: dict[int, Parts] = {}
        with only_one(self.folder):
            for record in self.records:
                tell(record.learner, len(record.results), record.folds, record.summary)
                left = budget - (time.monotonic() - start)
                if not record.complete and self.seconds_left(record) > left:
                    record.skipped = f"not run: it takes about {self.seconds_left(record):.0f} s"
                elif not record.complete:
                    record.skipped = ""
                    self._run(record, tell, encoded)
                tell(record.learner, record.folds, record.folds, record.summary)

    def _run(self, record: Record, tell: Watch, encoded: dict[int, Parts]) -> None:
        name, problem, about = record.learner, self.problem, self.about
        record.failure = None
        for fold in range(len(record.results), record.folds):
            split = self.splits[fold]
            try:
                if fold not in encoded:  # learners share what is encoded
                    encoded[fold] = problem.parts(*split, about["components"])
                learner, parts = self.learners[name], encoded[fold]
                given = about["settings"].get(name, {}), about["seed"], record.metric
                predictor, result = fit_learner(name, learner, problem, split, parts, *given)
                if fold == 0 and can_save(predictor.model):
                    predictor.save(self.model_path(record))
            except Exception as reason:
                record.failure = f"{type(reason).__name__}: {reason}"
                record.write(self.folder)
                return
            record.results.append(result)
            record.write(self.folder)
            tell(name, fold + 1, record.folds, record.summary)


def compare(
    data: Any,
    learners: str | Iterable[str] | Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    metric: str | None = None,
    split: str | None = None,
    cv: int | None = None,
    repeats: int = 1,
    class_weight: str | Mapping[str, float] | None = None,
    time_budget: float = math.inf,
    components: int | None = None,
    seed: int = 0,
    run: bool = True,
) -> Comparison:
    """Fit several learners to one problem and test them on the same rows.

    Parameters
    ----------
    data : str, Path, Problem or Dataset
        Name or path of data as in :func:`load_problem`, or the data.
    learners : str, iterable of str or mapping, optional
        Keys of :data:`LEARNERS`, "all", or a dictionary from names to scikit-learn estimators, in
        which None stands for a learner of the registry. Always predicting the most frequent class,
        or the mean, is compared as well. By default those whose ``default`` is true.
    folder : str or Path, default=None
        Output folder, ``compare-NAME`` if None. Results found there are reused.
    settings : mapping of str to mapping, optional
        Parameters of the estimators by name of the learner.
    metric : str, optional
        What learners are ranked by: "error" (by default, and by log-loss where it is the same),
        "log-loss", "balanced-accuracy", "roc-auc", "average-precision" or "f1"; "r2" (by default),
        "rmse" or "mae". Of two classes, F1 and the two before it are those of the rarer one; for F1
        and balanced accuracy, each half of the test rows chooses the threshold of the other.
    split : str, optional
        How rows are divided: "random"; "time:COLUMN", where test rows are later than training rows;
        or "group:COLUMN", of which no value is among training and test rows at once, and which is
        not learned from.
    cv : int, optional
        Number of folds. By default small tables have five, and others are divided once.
    repeats : int, default=1
        How often folds are drawn.
    class_weight : "balanced" or mapping of str to float, optional
        Factors on the weights of rows, by name of the class, for learners that have them.
    time_budget : float, optional
        Seconds for all fits. Learners that are likely to take longer than what is left are not run.
    components : int, optional
        Principal components of images and arrays, 0 for none. By default 64 of more than 128.
    seed : int, default=0
        Seed of all learners.
    run : bool, default=True
        Whether to fit what is not done; otherwise nothing is written until :meth:`Comparison.run`.

    Returns
    -------
    Comparison
        The results of all learners.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from tensorswitch.compare import compare
    >>> learners = {"neighbours": KNeighborsClassifier(3), "rr": None}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare("digits", learners, folder)
    >>> found.ranked[-1].label
    'most frequent class'
    """
    problem = load_problem(data) if isinstance(data, str | Path) else data
    if not isinstance(problem, Problem):
        problem = Problem.from_dataset(problem)
    ranked_by = metric_name(metric, problem.task)
    splits, (kind, column) = divided(problem, cv, repeats, split), parsed(split)
    how = f"{cv or len(splits)}-fold cross-validation"
    if kind == "time":
        how = f"{len(splits)} folds, each tested on rows that are later in {column!r}"
    elif kind == "group":
        how += f" with no value of {column!r} on both sides"
        problem = problem.without(column)
    elif repeats > 1:
        how = f"{repeats} times {cv or FOLDS}-fold cross-validation"
    folder = Path(f"compare-{problem.name}" if folder is None else folder)
    chosen = chosen_learners(learners, problem)
    given = {name: dict(some) for name, some in (settings or {}).items()}
    if strangers := [name for name in given if name not in chosen]:
        raise ValueError(f"settings of {', '.join(strangers)}, which are not compared")
    if class_weight is not None:
        factors = class_factors(class_weight, problem)
        for name, learner in chosen.items():
            known = innermost(build(learner, problem, len(splits[0][0]), {}, 0)).get_params()
            if "class_weight" in known:
                given[name] = {"class_weight": factors, **given.get(name, {})}
    about = {"components": default_components(problem, components), "seed": check_seed(seed)}
    digest = hashlib.blake2b(digest_size=8)
    for part in (part for split in splits for part in split):
        digest.update(part.astype(np.int64).tobytes())  # the same on all systems
    same = {"data": problem.fingerprint, "splits": digest.hexdigest(), **about}
    if ranked_by in OF_THRESHOLDS:
        same["metric"] = ranked_by
    records = []
    for name, learner in chosen.items():
        model = build(learner, problem, len(splits[0][0]), given.get(name, {}), seed)
        of = {**same, "parameters": {k: repr(v) for k, v in model.get_params().items()}}
        key = json.dumps([name, of, len(splits)], sort_keys=True).encode()
        word = "".join(c if c.isalnum() or c in "-+" else "_" for c in name)  # for a file
        stem = f"{problem.name}-{word}-{hashlib.blake2b(key, digest_size=6).hexdigest()}"
        about_it = learner.label, learner.about, learner.own
        empty = Record(stem, name, *about_it, of, len(splits), ranked_by)
        records.append(empty.read(folder))
    result = Comparison(problem, chosen, records, splits, folder, {**about, "settings": given}, how)
    if run:
        result.run(budget=time_budget)
    return result
