"""Tables and figures of ``mnist-cnn``, ``cifar10-nets`` and ``imdb-text``, beside the numbers of the paper."""

from pathlib import Path
from typing import Any

from gaussify.experiments import _lab as lab
from gaussify.experiments.paper._published import CIFAR10_COLUMNS, IMDB, METRICS, cifar10, with_errors
from gaussify.plotting import METHOD_COLOURS, SERIES_COLOURS, figure_file, plain_log_ticks

_CURVES = {"error_pct": "test error [%]", "nll": "test NLL [nat]"}


def _last(records: list[lab.Record]) -> list[lab.Record]:
    return lab.select(records, epoch=max(record["epoch"] for record in records))


def summarise_mnist(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the runs after the last epoch, by method and alpha_eps."""
    return lab.summary(_last(records), ["method"], (*METRICS, "train_nll"))


def summarise_cifar10(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the runs by network, method and alpha_eps, with the paper's beside them."""
    aurocs = [name for name in records[0] if name.endswith("_auc")]
    rows = lab.summary(records, ["net", "method"], (*METRICS, *aurocs, "train_nll", "seconds"))
    for row in rows:
        known = cifar10(row["net"], row["method"], row["alpha_eps"])
        row |= {f"paper_{name}{end}": known.get(f"{name}{end}") for name in CIFAR10_COLUMNS for end in ("", "_se")}
    return rows


def summarise_imdb(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the runs by method and alpha_eps; the paper's stand beside the chosen alpha_eps."""
    rows = lab.summary(records, ["method"], (*METRICS, "train_nll", "seconds"))
    for row in rows:
        known = with_errors(("paper_error_pct", "paper_nll"), IMDB[row["method"]])
        row |= {name: value if row["chosen"] else None for name, value in known.items()}
    return rows


def draw_mnist(records: list[lab.Record], folder: Path) -> None:
    """Draw errors and losses after each epoch: of every alpha_eps by method, and of the chosen one of each method."""
    columns = {
        method: lab.select(records, method="exact") + lab.select(records, method=method) for method in lab.MATCHED
    }
    size: dict[str, Any] = {"width": 2.6 * len(columns), "height": 5.0, "sharex": True, "sharey": "row"}
    size["legend"] = {"fontsize": 8, "columnspacing": 1.2}
    lab.draw_grid(folder, "mnist_all", columns, _CURVES, _fill_panel, x_label="epoch", **size)
    best = lab.group(lab.chosen(_last(records), "method"), "method", "alpha_eps")
    with figure_file(folder, "mnist_best", 1, len(_CURVES), width=8.0, height=3.4) as (figure, axes):
        for (metric, label), axis in zip(_CURVES.items(), axes[0], strict=True):
            for method, alpha in best:
                own = lab.select(records, method=method, alpha_eps=alpha)
                name = method if alpha is None else f"{method}, {alpha:g}"
                _draw_curve(axis, own, metric, color=METHOD_COLOURS[method], label=name)
            axis.set(xlabel="epoch", ylabel=label, yscale="log")
            plain_log_ticks(axis.yaxis)
        lab.legend_below(figure, axes, loc="outside right center", ncols=1, fontsize=8)


def _fill_panel(axis: Any, records: list[lab.Record], metric: str) -> None:
    """Draw a black curve for cross-entropy, and a coloured one for each alpha_eps."""
    _draw_curve(axis, lab.select(records, method="exact"), metric, color="black", label="exact")
    matched = lab.by([record for record in records if record["alpha_eps"] is not None], "alpha_eps")
    for colour, (alpha, own) in zip(SERIES_COLOURS, sorted(matched.items()), strict=False):
        _draw_curve(axis, own, metric, color=colour, label=f"alpha_eps = {alpha:g}")
    axis.set_yscale("log")
    plain_log_ticks(axis.yaxis)


def _draw_curve(axis: Any, records: list[lab.Record], metric: str, **look: Any) -> None:
    axis.plot(*lab.curve(records, "epoch", metric)[:2], **look)


def draw_cifar10(records: list[lab.Record], folder: Path) -> None:
    """Draw NLL and error of every method and alpha_eps against the paper's, for each network.

    The rank correlation is over all methods and values of alpha_eps that the paper has.
    """
    from scipy.stats import spearmanr  # slow to import

    nets = lab.by(records, "net")
    panels = {"nll": "NLL", "error_pct": "error [%]"}
    size = {"width": 3.6 * len(nets), "height": 6.4}
    with figure_file(folder, "cifar10_nets", len(panels), len(nets), **size) as (figure, axes):
        for (net, own), column in zip(nets.items(), axes.T, strict=True):
            for (metric, label), axis in zip(panels.items(), column, strict=True):
                pairs = _draw_pairs(axis, own, net, metric)
                axis.set(xlabel=f"{label}, the paper", ylabel=f"{label}, here", xscale="log", yscale="log")
                differ = all(len(set(values)) > 1 for values in zip(*pairs, strict=True))
                correlation = f": rank correlation {spearmanr(pairs).statistic:.2f}" if differ else ""
                axis.set_title(f"{net}{correlation}", fontsize=9)
                plain_log_ticks(axis.xaxis)
                plain_log_ticks(axis.yaxis)
        known = lab.by(records, "method")
        methods = [method for method in lab.LOSSES if method in known]
        handles = [axes[0, 0].scatter([], [], color=METHOD_COLOURS[method], label=method) for method in methods]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle("Small numbers are alpha_eps; rings mark the one that training images choose", fontsize=9)


def _draw_pairs(axis: Any, records: list[lab.Record], net: str, metric: str) -> list[tuple[float, float]]:
    """Draw a dot for each method and alpha_eps that the paper has, and return the places (the paper's, ours)."""
    best = lab.group(lab.chosen(records, "method"), "method", "alpha_eps")
    pairs = []
    for (method, alpha), own in lab.group(records, "method", "alpha_eps").items():
        known = cifar10(net, method, alpha)
        if metric in known:
            place = known[metric], lab.mean(own, metric)
            pairs.append(place)
            marker = {"s": 70, "edgecolors": "black"} if (method, alpha) in best else {"s": 22}
            axis.scatter(*place, color=METHOD_COLOURS[method], zorder=3, **marker)
            if alpha is not None:
                axis.annotate(f"{alpha:g}", place, fontsize=6, xytext=(4, 3), textcoords="offset points")
    return pairs


def draw_imdb(records: list[lab.Record], folder: Path) -> None:
    """Draw accuracy and log-likelihood of test reviews against alpha_eps, as the paper does."""
    panels = {"error_pct": ("test accuracy [%]", 100.0), "nll": ("test log-likelihood [nat]", 0.0)}
    with figure_file(folder, "imdb_alpha_eps", 1, len(panels), width=8.0, height=3.4) as (_, axes):
        for (metric, (label, perfect)), axis in zip(panels.items(), axes[0], strict=True):
            for method, own in lab.by(records, "method").items():
                look: dict[str, Any] = {"color": METHOD_COLOURS[method], "label": method}
                at, average, error = lab.curve(own, "alpha_eps", metric)
                if method in lab.MATCHED:
                    axis.errorbar(at, perfect - average, error, fmt="o-", ms=4, capsize=2, **look)
                else:
                    axis.axhline(perfect - average[0], ls="--" if method == "exact" else ":", **look)
            axis.set(xlabel="alpha_eps", ylabel=label, xscale="log")
            axis.set_xticks(sorted({record["alpha_eps"] for record in records} - {None}))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
        axes[0, 0].legend(fontsize=7)
