"""Tables and figures of ``mnist-cnn``, ``cifar10-nets`` and ``imdb-text``, and what the paper reports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaussify.experiments._networks._architectures import METHODS
from gaussify.experiments._lab._records import Record, Scalar, group, mean_and_error, means, of_best_alpha_eps
from gaussify.plotting import METHOD_COLOURS, SERIES_COLOURS, figure_file, plain_log_ticks

_CURVES = {"error_pct": "test error [%]", "nll": "test NLL [nat]"}

# The table of the appendix on CIFAR-10: error in per cent, NLL, ECE, and the area under the ROC curve against images of
# CIFAR-100 and SVHN, each with its standard error; by network, method and alpha_eps.
_PAPER_CIFAR10 = {
    "vgg11": {
        ("exact", None): ((8.955, 0.049), (0.360, 0.003), (0.057, 0.001), (0.848, 0.000), (0.858, 0.003)),
        ("gauss", None): ((11.375, 0.066), (1.598, 0.000), (0.670, 0.001), (0.806, 0.001), (0.835, 0.006)),
        ("moment-ori", 0.01): ((8.667, 0.037), (0.362, 0.002), (0.046, 0.000), (0.801, 0.001), (0.826, 0.005)),
        ("moment-ori", 0.05): ((8.902, 0.066), (0.395, 0.002), (0.081, 0.001), (0.807, 0.001), (0.846, 0.004)),
        ("moment-ori", 0.1): ((8.996, 0.057), (0.537, 0.001), (0.213, 0.001), (0.808, 0.001), (0.845, 0.004)),
        ("moment", 0.01): ((59.710, 0.604), (1.663, 0.009), (0.163, 0.004), (0.655, 0.003), (0.587, 0.015)),
        ("moment", 0.05): ((13.502, 0.085), (0.616, 0.003), (0.057, 0.001), (0.755, 0.001), (0.845, 0.006)),
        ("moment", 0.1): ((10.336, 0.059), (0.457, 0.003), (0.067, 0.001), (0.803, 0.001), (0.847, 0.003)),
        ("laplace", 0.01): ((12.197, 0.050), (0.417, 0.001), (0.080, 0.001), (0.806, 0.001), (0.842, 0.004)),
        ("laplace", 0.05): ((10.370, 0.049), (0.604, 0.001), (0.254, 0.001), (0.818, 0.001), (0.843, 0.004)),
        ("laplace", 0.1): ((10.397, 0.043), (0.817, 0.001), (0.390, 0.001), (0.813, 0.001), (0.857, 0.005)),
        ("variational", 0.01): ((11.524, 0.064), (1.117, 0.005), (0.241, 0.002), (0.683, 0.001), (0.796, 0.007)),
        ("variational", 0.05): ((8.918, 0.059), (0.628, 0.003), (0.076, 0.001), (0.800, 0.001), (0.835, 0.005)),
        ("variational", 0.1): ((8.784, 0.049), (0.366, 0.002), (0.051, 0.000), (0.808, 0.001), (0.837, 0.005)),
    },
    "resnet18": {
        ("exact", None): ((6.475, 0.034), (0.247, 0.001), (0.040, 0.000), (0.875, 0.001), (0.881, 0.003)),
        ("gauss", None): ((8.845, 0.042), (1.562, 0.001), (0.690, 0.000), (0.795, 0.002), (0.788, 0.012)),
        ("moment-ori", 0.01): ((6.211, 0.053), (0.284, 0.002), (0.034, 0.000), (0.788, 0.002), (0.782, 0.010)),
        ("moment-ori", 0.05): ((6.211, 0.058), (0.320, 0.001), (0.087, 0.001), (0.784, 0.002), (0.767, 0.011)),
        ("moment-ori", 0.1): ((6.358, 0.044), (0.465, 0.001), (0.217, 0.001), (0.784, 0.001), (0.782, 0.008)),
        ("moment", 0.01): ((62.531, 0.295), (1.780, 0.005), (0.166, 0.002), (0.631, 0.002), (0.454, 0.009)),
        ("moment", 0.05): ((11.521, 0.076), (0.516, 0.002), (0.049, 0.001), (0.772, 0.001), (0.850, 0.009)),
        ("moment", 0.1): ((7.650, 0.053), (0.365, 0.003), (0.050, 0.001), (0.809, 0.001), (0.850, 0.011)),
        ("laplace", 0.01): ((9.454, 0.077), (0.339, 0.002), (0.072, 0.001), (0.817, 0.001), (0.847, 0.008)),
        ("laplace", 0.05): ((7.761, 0.037), (0.535, 0.001), (0.251, 0.000), (0.798, 0.001), (0.790, 0.012)),
        ("laplace", 0.1): ((7.762, 0.050), (0.751, 0.001), (0.394, 0.000), (0.792, 0.002), (0.779, 0.009)),
        ("variational", 0.01): ((8.833, 0.059), (0.868, 0.005), (0.271, 0.003), (0.695, 0.002), (0.777, 0.012)),
        ("variational", 0.05): ((6.475, 0.024), (0.488, 0.002), (0.057, 0.000), (0.806, 0.001), (0.810, 0.014)),
        ("variational", 0.1): ((6.302, 0.048), (0.291, 0.002), (0.040, 0.000), (0.796, 0.001), (0.811, 0.012)),
    },
}
# The table on IMDB, of DistilBERT: error in per cent and NLL, each with its standard error; by method.
_PAPER_IMDB = {
    "exact": ((8.7, 0.4), (0.223, 0.011)),
    "gauss": ((8.7, 0.2), (0.523, 0.002)),
    "moment": ((8.8, 0.3), (0.282, 0.011)),
    "laplace": ((8.8, 0.3), (0.241, 0.008)),
    "variational": ((8.6, 0.2), (0.251, 0.009)),
}
PAPER_COLUMNS = ("error_pct", "nll", "ece", "cifar100_auc", "svhn_auc")


def paper_of(net: Scalar, method: Scalar, alpha_eps: Scalar) -> dict[str, float]:
    """Return what the paper reports of a network on CIFAR-10; nothing for an alpha_eps it does not have.

    Examples
    --------
    >>> paper_of("resnet18", "variational", 0.1)["nll"], paper_of("resnet18", "variational", 0.1)["nll_se"]
    (0.291, 0.002)
    """
    row = _PAPER_CIFAR10[str(net)].get((str(method), alpha_eps), ())  # type: ignore[arg-type]
    return _with_errors(PAPER_COLUMNS, row)


def _with_errors(names: Sequence[str], pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Values by their names, and their standard errors; nothing of nothing."""
    both = zip(names, pairs, strict=False)
    return {name: value for key, pair in both for name, value in zip((key, f"{key}_se"), pair, strict=True)}


def chosen(records: list[Record], *columns: str, method: str = "method") -> list[Record]:
    """Return the records of each method with the alpha_eps of the largest log-likelihood of training rows.

    ``method`` is the column that names it.

    Examples
    --------
    >>> common = {"method": "laplace", "seed": 0}
    >>> some = [common | {"alpha_eps": 0.1, "train_nll": 0.5}, common | {"alpha_eps": 0.2, "train_nll": 0.6}]
    >>> [record["alpha_eps"] for record in chosen(some)]
    [0.1]
    """
    by_fit = [record | {"fit": -float(record["train_nll"])} for record in records]  # type: ignore[arg-type]
    return of_best_alpha_eps(by_fit, *columns, method, score="fit")


def _last(records: list[Record]) -> list[Record]:
    end = max(int(record["epoch"]) for record in records)  # type: ignore[arg-type]
    return [record for record in records if record["epoch"] == end]


def summarise_mnist(records: list[Record]) -> list[Record]:
    """Means over the runs at the end, by method and alpha_eps; ``chosen`` marks what training images choose."""
    return summary(_last(records), [], ("error_pct", "nll", "ece", "train_nll"))


def summarise_cifar10(records: list[Record]) -> list[Record]:
    """Means over the runs by network, method and alpha_eps, the paper's beside them."""
    scores = tuple(name for name in records[0] if name.endswith("_auc"))
    rows = summary(records, ["net"], ("error_pct", "nll", "ece", *scores, "train_nll", "seconds"))
    for row in rows:
        known = paper_of(row["net"], row["method"], row["alpha_eps"])
        row |= {f"paper_{name}{end}": known.get(f"{name}{end}") for name in PAPER_COLUMNS for end in ("", "_se")}
    return rows


def summarise_imdb(records: list[Record]) -> list[Record]:
    """Means over the runs by method and alpha_eps; beside the chosen one of each method the paper's."""
    rows = summary(records, [], ("error_pct", "nll", "ece", "train_nll", "seconds"))
    for row in rows:
        known = _with_errors(("paper_error_pct", "paper_nll"), _PAPER_IMDB[str(row["method"])])
        row |= {name: value if row["chosen"] else None for name, value in known.items()}
    return rows


def summary(records: list[Record], columns: list[str], scores: tuple[str, ...]) -> list[Record]:
    """Return means over the runs, with their standard errors, by columns, method and alpha_eps.

    ``chosen`` marks what training rows choose.
    """
    best = {tuple(r[c] for c in (*columns, "method", "alpha_eps")) for r in chosen(records, *columns)}
    return [
        dict(zip((*columns, "method", "alpha_eps"), key, strict=True))
        | means(own, dict.fromkeys(scores, 4))
        | {"chosen": key in best, "runs": len(own)}
        for key, own in group(records, *columns, "method", "alpha_eps").items()
    ]


def draw_mnist(records: list[Record], folder: Path) -> None:
    """Draw errors and losses along the epochs: for each alpha_eps by method, and the chosen one of each method."""
    matched = [method for method in METHODS if method not in ("exact", "gauss")]
    alphas = sorted({float(r["alpha_eps"]) for r in records if r["alpha_eps"] is not None})
    options: dict[str, Any] = {"sharex": True, "sharey": "row", "width": 2.6 * len(matched), "height": 5.0}
    with figure_file(folder, "mnist_all", len(_CURVES), len(matched), **options) as (figure, axes):
        for method, column in zip(matched, axes.T, strict=True):
            column[0].set_title(method)
            column[-1].set_xlabel("epoch")
            for metric, axis in zip(_CURVES, column, strict=True):
                _draw_curve(axis, [r for r in records if r["method"] == "exact"], metric, color="black", label="exact")
                for place, alpha in enumerate(alphas):
                    own = [r for r in records if (r["method"], r["alpha_eps"]) == (method, alpha)]
                    _draw_curve(axis, own, metric, color=SERIES_COLOURS[place], label=f"alpha_eps = {alpha:g}")
                axis.set_yscale("log")
                plain_log_ticks(axis.yaxis)
        _finish(figure, axes)
    best = chosen(_last(records))
    with figure_file(folder, "mnist_best", 1, len(_CURVES), width=8.0, height=3.4) as (figure, axes):
        for (metric, label), axis in zip(_CURVES.items(), axes[0], strict=True):
            for choice in group(best, "method", "alpha_eps"):
                method, at = str(choice[0]), choice[1]
                own = [r for r in records if (r["method"], r["alpha_eps"]) == (method, at)]
                name = method if at is None else f"{method}, {at:g}"
                _draw_curve(axis, own, metric, color=METHOD_COLOURS[method], label=name)
            axis.set(xlabel="epoch", ylabel=label, yscale="log")
            plain_log_ticks(axis.yaxis)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", fontsize=8)


def draw_cifar10(records: list[Record], folder: Path) -> None:
    """Draw our NLL and error, with the chosen alpha_eps and with each, against the paper's, for each network.

    The rank correlation is over all methods and values of alpha_eps that the paper has.
    """
    nets = [net for (net,) in group(records, "net")]
    panels = {"nll": "NLL", "error_pct": "error [%]"}
    size = {"width": 3.6 * len(nets), "height": 6.4}
    with figure_file(folder, "cifar10_nets", len(panels), len(nets), **size) as (figure, axes):
        for net, column in zip(nets, axes.T, strict=True):
            own = [record for record in records if record["net"] == net]
            best = {(r["method"], r["alpha_eps"]) for r in chosen(own)}
            for (metric, label), axis in zip(panels.items(), column, strict=True):
                pairs = []
                for (method, alpha), some in group(own, "method", "alpha_eps").items():
                    known = paper_of(net, method, alpha)
                    if metric in known:
                        mean, colour = mean_and_error(r[metric] for r in some)[0], METHOD_COLOURS[str(method)]
                        pairs.append((known[metric], mean))
                        marker = {"s": 70, "edgecolors": "black"} if (method, alpha) in best else {"s": 22}
                        axis.scatter(known[metric], mean, color=colour, zorder=3, **marker)
                        if alpha is not None:
                            axis.annotate(
                                f"{alpha:g}",
                                (known[metric], mean),
                                fontsize=6,
                                xytext=(4, 3),
                                textcoords="offset points",
                            )
                axis.set(xlabel=f"{label}, the paper", ylabel=f"{label}, here", xscale="log", yscale="log")
                axis.set_title(f"{net}{_rank_correlation(pairs)}", fontsize=9)
                plain_log_ticks(axis.xaxis)
                plain_log_ticks(axis.yaxis)
        shown = [method for method in METHODS if method in {record["method"] for record in records}]
        handles = [axes[0, 0].scatter([], [], color=METHOD_COLOURS[method], label=method) for method in shown]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle("Small numbers are alpha_eps; rings mark the one that training images choose", fontsize=9)


def _rank_correlation(pairs: list[tuple[float, float]]) -> str:
    """In words; nothing where all are the same."""
    from scipy.stats import spearmanr  # slow to import

    if any(len(set(values)) < 2 for values in zip(*pairs, strict=True)):
        return ""
    return f": rank correlation {spearmanr(pairs).statistic:.2f}"


def draw_imdb(records: list[Record], folder: Path) -> None:
    """Draw accuracy and log-likelihood of test reviews against alpha_eps, as the paper does."""
    panels = {"error_pct": ("test accuracy [%]", 100.0, -1.0), "nll": ("test log-likelihood [nat]", 0.0, -1.0)}
    with figure_file(folder, "imdb_alpha_eps", 1, len(panels), width=8.0, height=3.4) as (_, axes):
        for (metric, (label, shift, sign)), axis in zip(panels.items(), axes[0], strict=True):
            for (method,), own in group(records, "method").items():
                means = [
                    (alpha, *mean_and_error(shift + sign * float(r[metric]) for r in some))  # type: ignore[arg-type]
                    for (alpha,), some in group(own, "alpha_eps").items()
                ]
                look: dict[str, Any] = {"color": METHOD_COLOURS[str(method)], "label": method}
                if means[0][0] is None:
                    axis.axhline(means[0][1], ls="--" if method == "exact" else ":", **look)
                else:
                    at, mean, error = zip(*means, strict=True)
                    axis.errorbar(at, mean, error, fmt="o-", ms=4, capsize=2, **look)
            axis.set(xlabel="alpha_eps", ylabel=label, xscale="log")
            axis.set_xticks(sorted({float(r["alpha_eps"]) for r in records if r["alpha_eps"] is not None}))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
        axes[0, 0].legend(fontsize=7)


def _draw_curve(axis: Any, records: list[Record], metric: str, **look: Any) -> None:
    means = {epoch: mean_and_error(r[metric] for r in own)[0] for (epoch,), own in group(records, "epoch").items()}
    axis.plot(list(means), list(means.values()), **look)


def _finish(figure: Any, axes: Any) -> None:
    for label, axis in zip(_CURVES.values(), axes[:, 0], strict=True):
        axis.set_ylabel(label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, columnspacing=1.2)
