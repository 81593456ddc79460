"""Records of ``gpc-uci`` by contender, chosen on training rows alone, and what the paper reports."""

from gaussify.experiments._lab._records import Record, Scalar, group, of_best_alpha_eps

METRICS = ("error_pct", "nll", "ece")
METHODS = ("gauss", "moment-ori", "moment", "laplace", "variational")

SIZES = {  # rows to learn from and to test on
    "eeg": (10_980, 4000),
    "htru2": (12_898, 5000),
    "magic": (14_020, 5000),
    "letter": (15_000, 5000),
    "drive": (48_509, 10_000),
}

# The appendix of the paper, best alpha_eps of each method, 20 splits: error in per cent, NLL and ECE, each with its
# standard error.
_PUBLISHED = {
    "eeg": {
        "moment-ori": (16.39, 3.02, 0.31, 0.01, 0.09, 0.04),
        "moment": (28.17, 4.31, 0.46, 0.03, 0.22, 0.06),
        "laplace": (21.54, 2.58, 0.50, 0.01, 0.19, 0.03),
        "variational": (23.22, 4.52, 0.36, 0.04, 0.01, 0.00),
    },
    "htru2": {
        "moment-ori": (2.02, 0.06, 0.07, 0.00, 0.04, 0.00),
        "moment": (2.17, 0.07, 0.07, 0.00, 0.04, 0.00),
        "laplace": (2.17, 0.06, 0.12, 0.00, 0.07, 0.00),
        "variational": (2.02, 0.06, 0.07, 0.00, 0.04, 0.00),
    },
    "magic": {
        "moment-ori": (12.99, 0.11, 0.31, 0.00, 0.01, 0.00),
        "moment": (13.73, 0.16, 0.36, 0.00, 0.08, 0.00),
        "laplace": (13.96, 0.14, 0.42, 0.00, 0.15, 0.00),
        "variational": (13.15, 0.13, 0.32, 0.00, 0.01, 0.00),
    },
    "letter": {
        "moment-ori": (12.13, 0.17, 0.37, 0.01, 0.03, 0.00),
        "moment": (13.21, 0.10, 0.39, 0.00, 0.03, 0.00),
        "laplace": (16.48, 0.13, 1.00, 0.00, 0.40, 0.00),
        "variational": (11.50, 0.13, 0.35, 0.00, 0.03, 0.00),
    },
    "drive": {
        "moment-ori": (0.78, 0.14, 0.02, 0.00, 0.05, 0.00),
        "moment": (0.64, 0.03, 0.03, 0.00, 0.06, 0.00),
        "laplace": (9.11, 1.36, 0.37, 0.02, 0.18, 0.00),
        "variational": (0.46, 0.04, 0.02, 0.00, 0.05, 0.00),
    },
}
PAPER = {
    dataset: {
        method: {metric: (row[2 * place], row[2 * place + 1]) for place, metric in enumerate(METRICS)}
        for method, row in rows.items()
    }
    for dataset, rows in _PUBLISHED.items()
}


def paper_best(dataset: str, metric: str) -> float:
    """Return the best mean of a metric that the paper reports for a data set, whatever its method.

    Examples
    --------
    >>> paper_best("letter", "error_pct")
    11.5
    """
    return min(row[metric][0] for row in PAPER[dataset].values())


def contenders(records: list[Record]) -> dict[tuple[str, str], list[Record]]:
    """Return one record for each split, by data set and contender, chosen by ``score``, which no test row enters.

    Contenders are the methods of the paper, each with the best alpha_eps; with scaling by rank where that was run;
    ``ours`` with each scaling and choice of kernels; and ``ours`` with the best of these.

    Examples
    --------
    >>> common = {"dataset": "letter", "split": 0, "variant": "paper", "method": "laplace", "scaling": "standard"}
    >>> common["kernels"] = "shared"
    >>> records = [common | {"alpha_eps": 0.1, "score": -0.5}, common | {"alpha_eps": 0.2, "score": -0.4}]
    >>> [record["alpha_eps"] for record in contenders(records)["letter", "laplace"]]
    [0.2]
    """
    best = of_best_alpha_eps(records, "dataset", "split", "variant", "method", "scaling", "kernels", score="score")
    found: dict[tuple[str, str], list[Record]] = {}
    for (dataset,), own in group(best, "dataset").items():
        for (variant, method, scaling, kernels), some in group(own, "variant", "method", "scaling", "kernels").items():
            found[str(dataset), _name(variant, method, scaling, kernels)] = some
        ours = [record for record in own if record["variant"] == "ours"]
        if ours:
            found[str(dataset), "ours"] = [_best(some) for some in group(ours, "split").values()]
    return found


def _best(records: list[Record]) -> Record:
    return max(records, key=lambda record: float(record["score"]))  # type: ignore[arg-type]


def _name(variant: Scalar, method: Scalar, scaling: Scalar, kernels: Scalar) -> str:
    if variant == "ours":
        return f"ours, {scaling}" if kernels == "shared" else f"ours, {scaling}, kernel for each class"
    return f"{method}" if scaling == "standard" else f"{method}, {scaling}"
