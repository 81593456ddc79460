"""The cost of sparse Gaussian processes: objective and gradient, their memory, and the time to a good test NLL.

- ``objective``: the collapsed bound and its gradient on letter, against GPyTorch's Dirichlet regression. Targets, form
  of the kernel, rows, inducing points and means are the same, so all have the same value (``objective_per_row``). Peak
  memory is that of a separate process that evaluates once, beside its memory before that.
- ``number of classes``: the same for 2 to 100 classes of the same number of generated rows. One more class costs the
  factorisation of a matrix of size M, as much as about M/2 rows.
- ``share of peak``: the speed of the same on drive, counted as 4 N M² operations, over that of matrix products.
- ``exact likelihood``: objectives with the class likelihood (committed results keep the name). One gradient of
  ``objective="elbo"`` and of ``"leave-one-out"`` on letter, with expectations over the default number of rows, beside
  one of ``objective="matched"`` with the same targets.
- ``million rows``: seconds, and peak memory of the whole process, which also generates the rows.
- ``time to nll``: test scores on letter against the seconds of a fit. Predictions are timed separately. Probabilities
  are at least 1e-15, as forests give zeros.

``time_ratio`` is the time over that of the reference in the same run: gaussify, or its smallest number of classes.
``memory_ratio`` is the ratio of peaks. On two cores the laptop preset takes about 40 minutes, 15 of them the time
limits of GPyTorch's training, and 8 GB.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int64
from torch import Tensor

from gaussify import datasets
from gaussify.experiments import _lab as lab
from gaussify.experiments.benchmarks import _gp_peers as peers
from gaussify.experiments.benchmarks._gp_speed_figures import NLL, OWN, draw, summarise
from gaussify.gp import GPClassifier
from gaussify.gp._constant_mean import constant_variance
from gaussify.gp._rows import SortedRows
from gaussify.gp.learning._hyperparameters import default_batch
from gaussify.gp.objectives._collapsed import accumulate_collapsed_bound
from gaussify.gp.objectives._expectation import log_predictive
from gaussify.gp.objectives._likelihood import LikelihoodObjective, accumulate_likelihood_objective
from gaussify.likelihoods import SoftmaxLikelihood

GENERATED = "generated"  # instead of a data set
_ONE_KERNEL = "GPyTorch, one kernel"
_PEERS = {_ONE_KERNEL: {"kernel_per_class": False}, "GPyTorch, one kernel a class": {"kernel_per_class": True}}
_ALPHA = 0.01  # GPyTorch's default
_SMALLEST = 1e-15  # probability in a score, as usual


@lru_cache(maxsize=1)
def load_split(name: str, n_train: int, n_test: int) -> lab.Split:
    """Return rows of a data set in a random order that is always the same, or generated ones."""
    if name == GENERATED:
        X, y = datasets.make_drifting_stream(n_train + n_test, 5, 4, drift="none", random_state=0)
    else:
        X, y = datasets.load(name)[1:3]
    order = np.random.default_rng(0).permutation(len(X))[: n_train + n_test]
    X, y = X[order].astype(np.float64), y[order]
    spread = X[:n_train].std(0)
    X = (X - X[:n_train].mean(0)) / np.where(spread > 0.0, spread, 1.0)
    return lab.Split(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


class Evaluation(NamedTuple):
    """The rows, labels and inducing points that the bound is evaluated with."""

    X: Float[Tensor, "n d"]
    labels: Int64[Tensor, " n"]
    points: Float[Tensor, "m d"]

    @classmethod
    def of(cls, X: Float[np.ndarray, "n d"], y: Int64[np.ndarray, " n"], n_inducing: int) -> "Evaluation":
        """Return an evaluation with distinct rows as inducing points."""
        distinct = np.unique(X[: 10 * n_inducing], axis=0)
        chosen = np.random.default_rng(0).permutation(len(distinct))[:n_inducing]
        return cls(torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(distinct[chosen]))

    def own(self) -> Callable[[], Any]:
        """Return a function that evaluates gaussify's bound and gradient with GPyTorch's targets."""
        likelihood, kernel, rows, points = self._begin()
        table = likelihood.target_table()

        def evaluate() -> Any:
            kernel.zero_grad()
            points.grad = None
            return accumulate_collapsed_bound(kernel, points, rows, table)

        return evaluate

    def with_labels(self, objective: str, seed: int) -> Callable[[], float]:
        """Return a function that evaluates an objective with the class likelihood, with other rows each time."""
        likelihood, kernel, rows, points = self._begin()
        n = len(self.labels)
        log_alpha = torch.tensor(_ALPHA, dtype=torch.float64).log().requires_grad_()
        batch_size, generator = default_batch(n, likelihood.n_latents), torch.Generator().manual_seed(seed)
        of_rows = {
            "elbo": LikelihoodObjective(likelihood.expected_log_prob),
            "leave-one-out": LikelihoodObjective(log_predictive(likelihood), leaves_out=True),
        }[objective]

        def evaluate() -> float:
            kernel.zero_grad()
            points.grad = log_alpha.grad = None
            table = SoftmaxLikelihood(likelihood.n_classes, log_alpha.exp(), "moment-ori").target_table()
            sample = torch.randperm(n, generator=generator)[:batch_size].sort().values if batch_size < n else None
            return accumulate_likelihood_objective(
                kernel, points, rows, table, of_rows, constant_variance=constant_variance(), sample=sample
            )

        return evaluate

    def _begin(self) -> tuple[SoftmaxLikelihood, Kernel, SortedRows, Float[Tensor, "m d"]]:
        likelihood = SoftmaxLikelihood(int(self.labels.max()) + 1, torch.tensor(_ALPHA).double(), "moment-ori")
        variance = float(likelihood.target_table().mean[self.labels].var(0).mean())
        kernel = peers.scaled_rbf(self.X.shape[1], variance, torch.float64, torch.Size())
        rows = SortedRows.of(self.X, self.labels, n_classes=likelihood.n_classes)
        return likelihood, kernel, rows, self.points.clone().requires_grad_()

    def gpytorch(self, *, kernel_per_class: bool, mean: Tensor | None = None) -> Callable[[], float]:
        """Return a function that evaluates GPyTorch's bound and gradient."""
        model = peers.DirichletSGPR(self.X, self.labels, self.points, mean=mean, kernel_per_class=kernel_per_class)

        def evaluate() -> float:
            model.zero_grad()
            value = model.bound()
            value.backward()
            return value.item()

        return evaluate


def _objective(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Times in one interleaved run, and memory in separate processes."""
    split, m = load_split(*settings["letter"]), settings["n_inducing"]
    problem = Evaluation.of(split.X, split.y, m)
    runs: dict[str, Callable[[], Any]] = {OWN: problem.own()}
    mean = runs[OWN]().mean
    runs |= {name: problem.gpytorch(mean=mean, **options) for name, options in _PEERS.items()}
    alone = {
        name: lab.run_alone(__name__, "evaluate_alone", name, settings["letter"], m, mean.tolist())
        for name in settings["memory_of"]
    }
    times = lab.best_times(runs, settings["n_rounds"], {OWN: settings["n_own"]})
    for name, seconds in times.items():
        record: lab.Record = {"contender": name, "seconds": seconds, "time_ratio": seconds / times[OWN]}
        if name in alone:
            before, peak, value = alone[name]
            record |= {"gibibytes_before": before, "peak_gibibytes": peak, "memory_ratio": peak / alone[OWN][1]}
            record["objective_per_row"] = value / len(split.X)
        yield record


def _with_labels(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Times of all objectives in one interleaved run."""
    split = load_split(*settings["letter"])
    problem = Evaluation.of(split.X, split.y, settings["n_inducing"])
    runs: dict[str, Callable[[], Any]] = {"matched": problem.own()}
    runs |= {name: problem.with_labels(name, seed) for name in ("elbo", "leave-one-out")}
    times = lab.best_times(runs, settings["n_own"])
    for name, seconds in times.items():
        yield {"contender": name, "seconds": seconds, "time_ratio": seconds / times["matched"]}


def evaluate_alone(contender: str, split: list[Any], n_inducing: int, mean: list[float]) -> None:
    """Evaluate once, and print the peak memory of this process before and after, in gibibytes, and the bound."""
    X, y, _, _ = load_split(*split)
    problem = Evaluation.of(X, y, n_inducing)
    options = _PEERS.get(contender)
    evaluate: Any = problem.gpytorch(mean=torch.tensor(mean).double(), **options) if options else problem.own()
    before = lab.peak_gibibytes()
    found = evaluate()
    print(before, lab.peak_gibibytes(), found if options else found.value)


def _classes(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Objective and gradient against the number of classes; GPyTorch's only with few rows and classes."""
    m, runs = settings["n_inducing"], {}
    for n in settings["class_rows"]:
        for k in settings["n_classes"]:
            rows = datasets.make_drifting_stream(n, settings["class_features"], k, drift="none", random_state=seed)
            problem = Evaluation.of(*rows, m)
            runs[OWN, n, k] = problem.own()
            if k in settings["gpytorch_classes"] and n == min(settings["class_rows"]):
                runs[_ONE_KERNEL, n, k] = problem.gpytorch(kernel_per_class=False)
    n_in_a_row = {case: settings["n_own"] for case in runs if case[0] == OWN}
    times = lab.best_times(runs, settings["n_rounds"], n_in_a_row)
    fewest = min(settings["n_classes"])
    for (name, n, k), seconds in times.items():
        ratio = seconds / times[name, n, fewest]
        yield {"contender": f"{name}, {n} rows", "n_classes": k, "seconds": seconds, "time_ratio": ratio}


def _share(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Operations a second: a pass over rows takes 2 M² for each row, and the gradient as many again."""
    split, m = load_split(*settings["drive"]), settings["n_inducing"]
    size = settings["product_size"]
    matrix = np.random.default_rng(seed).standard_normal((size, size))
    tensor = torch.from_numpy(matrix)
    runs = {
        OWN: Evaluation.of(split.X, split.y, m).own(),
        "product by torch": lambda: tensor @ tensor,
        "product by NumPy": lambda: matrix @ matrix,
    }
    times = lab.best_times(runs, settings["n_rounds"] * settings["n_own"])
    work = dict.fromkeys(runs, 2.0 * size**3) | {OWN: 4.0 * len(split.X) * m**2}
    speed = {name: work[name] / seconds for name, seconds in times.items()}
    for name, seconds in times.items():
        share = speed[name] / max(speed.values())
        yield {"contender": name, "seconds": seconds, "gigaflops": 1e-9 * speed[name], "share_of_peak": share}


def _million(settings: lab.Settings, seed: int) -> Iterator[lab.Record]:
    """Seconds and peak memory in a separate process."""
    seconds, peak = lab.run_alone(__name__, "evaluate_many_rows", *settings["million"], settings["n_inducing"], seed)
    yield {"contender": OWN, "seconds": seconds, "peak_gibibytes": peak}


def evaluate_many_rows(n: int, d: int, n_classes: int, n_inducing: int, seed: int) -> None:
    """Generate rows, evaluate once, and print the seconds of the evaluation and the peak memory in gibibytes."""
    rows = datasets.make_drifting_stream(n, d, n_classes, drift="none", random_state=seed)
    evaluate = Evaluation.of(*rows, n_inducing).own()
    begun = time.perf_counter()
    evaluate()
    print(time.perf_counter() - begun, lab.peak_gibibytes())


def _scores(probs: Float[np.ndarray, "n c"], y: Int64[np.ndarray, " n"]) -> lab.Record:
    probs = np.maximum(probs, _SMALLEST)
    return lab.scores(probs / probs.sum(1, keepdims=True), y, ("nll", "ece", "error"), n_digits=15)


def _fitted(model: Any, split: lab.Split, n_rows: int | None = None) -> lab.Record:
    """Scores of a scikit-learn estimator, fitted to the first rows or to all."""
    begun = time.perf_counter()
    model.fit(split.X[:n_rows], split.y[:n_rows])
    fitted = time.perf_counter()
    probs = model.predict_proba(split.X_test)
    seconds = {"seconds": fitted - begun, "predict_seconds": time.perf_counter() - fitted}
    return seconds | _scores(probs, split.y_test)


def _watched(
    make: Callable[..., peers.Trainer], settings: lab.Settings, split: lab.Split, seed: int
) -> Iterator[lab.Record]:
    """Scores of a model of GPyTorch while it is trained."""
    training = partial(make, split.X, split.y, split.X_test, settings["n_inducing"])
    for look in peers.watch(training, settings["time_limit"], settings["n_looks"]):
        seconds = {"seconds": look.seconds, "predict_seconds": look.predict_seconds}
        yield {"n_iterations": look.n_steps, **seconds, **_scores(look.probs, split.y_test)}


def _own_fits(
    n_predict: int | None, iterations: list[int], settings: lab.Settings, split: lab.Split, seed: int
) -> Iterator[lab.Record]:
    """Scores of fits with at most so many iterations, each from the start."""
    for max_iter in iterations:
        model = GPClassifier(n_inducing=settings["n_inducing"], n_inducing_predict=n_predict, max_iter=max_iter)
        record = _fitted(model, split)
        yield {"n_iterations": model.search_[0].n_iterations, **record}


def _of_sklearn(name: str, settings: lab.Settings, split: lab.Split, seed: int) -> Iterator[lab.Record]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF

    kernel = 1.0 * RBF(split.X.shape[1] ** 0.5)  # a lengthscale for each class; a search for more would take long
    models = {
        "forest": RandomForestClassifier(settings["n_trees"], n_jobs=-1, random_state=seed),
        "boosting": HistGradientBoostingClassifier(random_state=seed),
        "gp": GaussianProcessClassifier(kernel, random_state=seed),
    }
    yield _fitted(models[name], split, settings["n_exact_rows"] if name == "gp" else None)


def _contenders(settings: lab.Settings) -> Mapping[str, Callable[..., Iterator[lab.Record]]]:
    svgp, name = partial(peers.svgp_trainer, batch_size=settings["batch_size"]), f"{OWN}, M={settings['n_inducing']}"
    own = {
        name if n_predict is None else f"{name}, {n_predict} to predict": partial(_own_fits, n_predict, iterations)
        for n_predict, iterations in settings["own"]
    }
    return own | {
        "GPyTorch SVGP, one kernel": partial(_watched, partial(svgp, kernel_per_class=False)),
        "GPyTorch SVGP, one kernel a class": partial(_watched, partial(svgp, kernel_per_class=True)),
        "GPyTorch Dirichlet": partial(_watched, peers.dirichlet_trainer),
        "random forest": partial(_of_sklearn, "forest"),
        "gradient boosting": partial(_of_sklearn, "boosting"),
        f"scikit-learn GP, {settings['n_exact_rows']} rows": partial(_of_sklearn, "gp"),
    }


_MEASUREMENTS: dict[str, Callable[[lab.Settings, int], Iterator[lab.Record]]] = {
    "objective": _objective,
    "number of classes": _classes,
    "share of peak": _share,
    "exact likelihood": _with_labels,
    "million rows": _million,
}


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    costs: list[lab.Task] = [{"measurement": name} for name in _MEASUREMENTS]
    return costs + [{"measurement": NLL, "contender": name} for name in _contenders(settings)]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    measure = _MEASUREMENTS.get(task["measurement"]) or partial(_scored, task["contender"])
    records = measure(settings, seed % 2**31)
    return [{name: lab.significant(value) for name, value in record.items()} for record in records]


def _scored(contender: str, settings: lab.Settings, seed: int) -> list[lab.Record]:
    split = load_split(*settings["letter"])
    with warnings.catch_warnings():
        if not contender.startswith(OWN):
            warnings.simplefilter("ignore")  # of jitter, and of searches that end at a bound
        return list(_contenders(settings)[contender](settings, split, seed))


PRESETS = lab.presets(
    dict(letter=["letter", 15_000, 5000], drive=["drive", 48_509, 10_000], million=[1_000_000, 20, 10], n_inducing=200)
    | dict(n_own=5, memory_of=[OWN, *_PEERS], class_rows=[20_000, 100_000], class_features=20)
    | dict(n_classes=[2, 5, 10, 26, 50, 100], gpytorch_classes=[2, 5], product_size=2000)
    | dict(own=[[None, [5, 20, 60, 200]], [1000, [20, 200]], [2000, [200]]], batch_size=1024, n_trees=500)
    | dict(n_exact_rows=1000),
    smoke=dict(letter=[GENERATED, 200, 100], drive=[GENERATED, 300, 100], million=[2000, 3, 3], n_inducing=10)
    | dict(n_rounds=1, n_own=2, class_rows=[200, 300], class_features=3, n_classes=[2, 4], gpytorch_classes=[2])
    | dict(product_size=100, own=[[None, [2, 10]], [20, [10]]], time_limit=0.2, n_looks=2, batch_size=64, n_trees=10)
    | dict(n_exact_rows=40, memory_of=[]),  # importing everything in new processes would take longest
    laptop=dict(n_rounds=2, time_limit=300.0, n_looks=8),
    paper=dict(n_rounds=4, time_limit=900.0, n_looks=9),
)

TITLE = "Cost of sparse Gaussian processes, and their time to a good test NLL, against peers"

lab.register(lab.Experiment("gp-speed", TITLE, PRESETS, _tasks, _run, draw, summarise))
