"""The figures of the ``densities`` experiment, drawn from its records alone."""

from pathlib import Path
from typing import Any

import numpy as np

from gaussify.experiments import _lab as lab
from gaussify.plotting import METHOD_COLOURS, SERIES_COLOURS, figure_file

# In the order of the columns of the paper's figures.
METHODS = {"gamma": lab.MATCHED, "beta": ("laplace", "moment", "variational")}
DIVERGENCES = {"kl_q_p": "KL(q||p)", "kl_p_q": "KL(p||q)"}

_X_LABELS = {"gamma": {"standard": "ω", "transformed": "log ω"}, "beta": {"standard": "ω", "transformed": "logit ω"}}
_X_LIMITS = {
    "gamma": {"standard": (0.0, 12.0), "transformed": (-20.0, 5.0)},
    "beta": {"standard": (0.0, 1.0), "transformed": (-20.0, 10.0)},
}
# Poles and far tails would flatten everything else.
_LOG_DENSITY_LIMITS = {"gamma": (-9.0, 3.0), "beta": (-7.0, 4.0)}
_DENSITY_LIMITS = {"gamma": (0.0, 1.5), "beta": (0.0, 4.0)}
_DIVERGENCE_LIMITS = (1e-6, 1e3)


def draw(records: list[lab.Record], folder: Path) -> None:
    """Write the overview (figure 1), one figure per family (appendix A) and the divergences."""
    densities = lab.select(records, quantity="density")
    _draw_overview(densities, folder)
    for family in METHODS:
        _draw_family(lab.select(densities, family=family), family, folder)
    _draw_divergences(lab.select(records, quantity="divergence"), folder)


def _draw_overview(records: list[lab.Record], folder: Path) -> None:
    """Draw every method on the same axes, for the hardest and the easiest distribution of each family."""
    panels = [(family, basis) for family in METHODS for basis in ("standard", "transformed")]
    with figure_file(folder, "overview", 1, len(panels), width=13.0, height=3.6) as (figure, axes):
        for ax, (family, basis) in zip(axes[0], panels, strict=True):
            height = "log_density" if basis == "standard" else "density"
            panel = lab.select(records, family=family, basis=basis)
            shown = [list(lab.group(panel, "a", "b"))[i] for i in (0, -1)]
            for a, b in shown:
                for method in ("exact", *METHODS[family]):
                    curve = lab.select(panel, a=a, b=b, method=method)
                    ax.plot(lab.column(curve, "x"), lab.column(curve, height), **_method_style(method))
            _set_axes(ax, family, basis, height)
            names = " and ".join(f"({a:g}, {b:g})" for a, b in shown)
            ax.set_title(f"{family.title()}{names}")
        methods = ("exact", *METHODS["gamma"])
        handles = [axes[0, 0].plot([], [], **_method_style(method))[0] for method in methods]
        figure.legend(handles, methods, loc="outside lower center", ncols=len(methods))


def _draw_family(records: list[lab.Record], family: str, folder: Path) -> None:
    """Draw one column per method: the pdf above, the transformed density below; solid is exact."""
    methods, parameters = METHODS[family], lab.group(records, "a", "b")
    size = {"width": 3.2 * len(methods), "height": 5.6}
    with figure_file(folder, family, 2, len(methods), sharey="row", **size) as (figure, axes):
        for row, basis in enumerate(("standard", "transformed")):
            for ax, method in zip(axes[row], methods, strict=True):
                for (a, b), colour in zip(parameters, SERIES_COLOURS, strict=False):
                    curves = lab.select(records, basis=basis, a=a, b=b)
                    for name, linestyle in (("exact", "-"), (method, "--")):
                        curve = lab.select(curves, method=name)
                        ax.plot(lab.column(curve, "x"), lab.column(curve, "density"), color=colour, linestyle=linestyle)
                _set_axes(ax, family, basis, "density")
                ax.set_title("" if row else method)
        for ax in axes[:, 1:].flat:
            ax.set_ylabel("")
        labels = {
            f"{family.title()}({a:g}, {b:g})": (c, "-") for (a, b), c in zip(parameters, SERIES_COLOURS, strict=False)
        }
        labels |= {"exact": ("0.4", "-"), "approximation": ("0.4", "--")}
        handles = [axes[0, 0].plot([], [], color=colour, linestyle=style)[0] for colour, style in labels.values()]
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _draw_divergences(records: list[lab.Record], folder: Path) -> None:
    """Draw both divergences against the concentration, one column per curve."""
    curves = list(lab.by(records, "curve"))
    size = {"width": 3.6 * len(curves), "height": 6.0}
    with figure_file(folder, "divergences", 2, len(curves), sharex=True, sharey=True, **size) as (figure, axes):
        for row, (divergence, name) in enumerate(DIVERGENCES.items()):
            for ax, curve in zip(axes[row], curves, strict=True):
                for method in METHODS[curve.split("(")[0]]:
                    line = lab.select(records, curve=curve, method=method)
                    # Far above the axes there is nothing to see, and infinities would upset the layout.
                    values = np.minimum(lab.column(line, divergence), 1e6 * _DIVERGENCE_LIMITS[1])
                    ax.loglog(lab.column(line, "a"), values, color=METHOD_COLOURS[method], label=method)
                ax.set(ylim=_DIVERGENCE_LIMITS, title="" if row else curve.capitalize())
                ax.set_xlabel("concentration a" if row else "")
                ax.minorticks_off()
            axes[row, 0].set_ylabel(name)
        lab.legend_below(figure, axes, n_labels=4)


def _method_style(method: str) -> dict[str, Any]:
    exact = method == "exact"
    return {"color": METHOD_COLOURS[method], "linestyle": "-" if exact else "--", "linewidth": 2.0 if exact else 1.3}


def _set_axes(ax: Any, family: str, basis: str, height: str) -> None:
    ax.set(xlim=_X_LIMITS[family][basis], xlabel=_X_LABELS[family][basis], ylabel=height.replace("_", " "))
    if height == "log_density":
        ax.set_ylim(_LOG_DENSITY_LIMITS[family])
    elif basis == "standard":
        ax.set_ylim(_DENSITY_LIMITS[family])
    else:
        ax.set_ylim(bottom=0.0)
