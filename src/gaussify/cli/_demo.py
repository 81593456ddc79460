"""``gaussify demo``: what the library does, on bundled data, in about a minute."""

from pathlib import Path
from typing import Annotated

import typer

from gaussify.cli._app import app
from gaussify.cli._reproduce import print_table, reproduce_steps

_STEPS = (
    ("densities", "smoke", "How well does a Gaussian stand for a Gamma or a Beta? KL divergences by method"),
    ("probabilities", "smoke", "From Gaussian latents to class probabilities: error, and time against 256 samples"),
    ("digits", "laptop", "Handwritten digits: labels become Gaussians once, the rest is least squares"),
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Results and figures go to OUT/NAME/PRESET.")] = Path("runs/demo"),
) -> None:
    """Turn labels into Gaussians, classify by least squares, and compare with baselines; about a minute.

    [bold]Examples[/bold]

    gaussify demo

    gaussify demo --out demo-results
    """
    typer.secho("One label of three classes, alpha_eps = 0.1: the Gaussian each method puts on the logits", bold=True)
    print_table(_label_table())
    for name, preset, title in _STEPS:
        typer.secho(f"\n{title}", bold=True)
        reproduce_steps(name, preset, out, fresh=True)


def _label_table() -> list[dict[str, float | str]]:
    from gaussify.likelihoods import LikelihoodMethod, SoftmaxLikelihood

    rows: list[dict[str, float | str]] = []
    for method in LikelihoodMethod:
        mean, variance = SoftmaxLikelihood(3, alpha_eps=0.1, method=method.value).target_table()
        rows.append(
            {
                "method": method.value,
                "mean, its class": mean[0, 0].item(),
                "variance, its class": variance[0, 0].item(),
                "mean, others": mean[0, 1].item(),
                "variance, others": variance[0, 1].item(),
            }
        )
    return rows
