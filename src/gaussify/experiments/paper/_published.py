"""The numbers that the paper reports, for the tables that show them beside ours."""

from collections.abc import Sequence

METRICS = ("error_pct", "nll", "ece")
CIFAR10_COLUMNS = (*METRICS, "cifar100_auc", "svhn_auc")

# The table of the appendix on CIFAR-10: error in per cent, NLL, ECE, and the area under the ROC curve against images of
# CIFAR-100 and SVHN, each with its standard error; by network, method and alpha_eps.
_CIFAR10 = {
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
# The table on IMDB, for DistilBERT: error in per cent and NLL, each with its standard error; by method.
IMDB = {
    "exact": ((8.7, 0.4), (0.223, 0.011)),
    "gauss": ((8.7, 0.2), (0.523, 0.002)),
    "moment": ((8.8, 0.3), (0.282, 0.011)),
    "laplace": ((8.8, 0.3), (0.241, 0.008)),
    "variational": ((8.6, 0.2), (0.251, 0.009)),
}
# The table of the appendix on UCI tables, with the best alpha_eps of each method and 20 splits: error in per cent, NLL
# and ECE, each followed by its standard error; by data set and method.
_UCI = {
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
GPC_UCI = {
    dataset: {
        method: {metric: (row[2 * place], row[2 * place + 1]) for place, metric in enumerate(METRICS)}
        for method, row in rows.items()
    }
    for dataset, rows in _UCI.items()
}


def cifar10(net: str, method: str, alpha_eps: float | None) -> dict[str, float]:
    """Return what the paper reports for a network on CIFAR-10; nothing for an alpha_eps that it does not have."""
    return with_errors(CIFAR10_COLUMNS, _CIFAR10[net].get((method, alpha_eps), ()))


def with_errors(names: Sequence[str], pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return values by their names, and their standard errors by the names that end in ``_se``.

    Examples
    --------
    >>> with_errors(["nll"], [(0.35, 0.01)])
    {'nll': 0.35, 'nll_se': 0.01}
    """
    both = zip(names, pairs, strict=False)
    return {name: value for key, pair in both for name, value in zip((key, f"{key}_se"), pair, strict=True)}


def gpc_uci_best(dataset: str, metric: str) -> float:
    """Return the best mean of a metric that the paper reports for a UCI table, with any method."""
    return min(row[metric][0] for row in GPC_UCI[dataset].values())
