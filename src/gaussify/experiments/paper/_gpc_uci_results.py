"""Records of ``gpc-uci`` by contender, chosen by training rows alone."""

from gaussify.experiments import _lab as lab


def contenders(records: list[lab.Record]) -> dict[tuple[str, str], list[lab.Record]]:
    """Return one record for each split, by data set and contender, chosen by ``score``, which uses no test row.

    Contenders are the methods of the paper, each with its best alpha_eps; the same with scaling by rank, where that was
    run; ``ours`` with each scaling and choice of kernels; and ``ours`` with the best of these.
    """
    kinds = ("variant", "method", "scaling", "kernels")
    best = lab.best_alpha_eps(records, "dataset", "split", *kinds, score="score")
    found: dict[tuple[str, str], list[lab.Record]] = {}
    for dataset, own in lab.by(best, "dataset").items():
        found |= {(dataset, _name(*kind)): some for kind, some in lab.group(own, *kinds).items()}
        if ours := lab.by(lab.select(own, variant="ours"), "split"):
            found[dataset, "ours"] = [max(some, key=lambda record: record["score"]) for some in ours.values()]
    return found


def _name(variant: str, method: str, scaling: str, kernels: str) -> str:
    if variant == "ours":
        return f"ours, {scaling}" if kernels == "shared" else f"ours, {scaling}, kernel for each class"
    return method if scaling == "standard" else f"{method}, {scaling}"
