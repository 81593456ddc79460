"""``gaussify demo``: what the library does, on bundled data, in about a minute."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gaussify._atomic import replacing
from gaussify.cli._app import app
from gaussify.cli._output import Json, print_json, print_table
from gaussify.cli._reproduce import reproduce_steps
from gaussify.cli._tables import tables_for
from gaussify.tables import FitOptions

_PAGE, _TABLE = "demo.html", "breast-cancer"
_STEPS = (
    (
        "digits",
        "Handwritten digits by every method, beside others",
        "Labels become Gaussians once; the rest is least squares on the pixels. Means of two splits, best NLL first.",
    ),
    (
        "digits-stream",
        "The same digits, one row at a time",
        "Each row is predicted, then learnt in closed form. Curves are means of two streams, over blocks of 50 rows.",
    ),
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the page, the figures and their numbers go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of rows held out, and of all else left to chance.")] = 0,
    as_json: Json = False,
) -> None:
    """Turn labels into Gaussians, classify, compare with baselines, learn a stream; about a minute.

    All data come with scikit-learn. The results are on one page, OUT/demo.html.

    [bold]Examples[/bold]

    gaussify demo

    gaussify demo --out demo-results
    """
    from gaussify.plotting import Page, image_html, paragraph_html, table_html

    tables = tables_for("demo")
    page = Page("gaussify: Bayesian classification as cheap as least squares", "What 'gaussify demo' has computed")
    answer: dict[str, Any] = {"page": str(out / _PAGE)}

    def announce(title: str) -> None:
        if not as_json:
            typer.secho(f"\n{title}", bold=True)

    def show(name: str, title: str, rows: list[dict[str, Any]], *parts: str) -> None:
        page.section(title, *parts)
        answer[name] = rows
        if not as_json:
            print_table(rows)

    title = "One label of three classes, alpha_eps = 0.1: the Gaussian that each method puts on the logits"
    announce(title)
    rows = _label_table()
    show("label", title, rows, table_html(rows))
    title = "A table: is a tumour malignant? 569 rows, 30 measurements, a fifth of the rows held out"
    announce(title)
    rows = _fit_table(tables, out / _TABLE, seed)
    show(
        _TABLE,
        title,
        rows,
        paragraph_html("What 'gaussify fit TABLE --target COLUMN' does with any CSV or Parquet file.", is_pale=True),
        table_html(rows, best=min(range(len(rows)), key=lambda place: rows[place]["NLL"])),
        f'<p><a href="{_TABLE}/{tables.REPORT_FILE}">Its report</a></p>',
    )
    for name, title, words in _STEPS:
        announce(title)
        rows = reproduce_steps(name, "laptop", out, seed=seed, fresh=True).summary
        picture = image_html(out / name / "laptop" / f"{name.replace('-', '_')}.png", title)
        show(name, title, rows, paragraph_html(words, is_pale=True), picture, table_html(rows))
    with replacing(out / _PAGE) as file:
        file.write(page.html().encode())
    if as_json:
        print_json(answer)
    typer.echo(f"\nAll of this is on one page: {out / _PAGE}", err=True)


def _fit_table(tables: Any, folder: Path, seed: int) -> list[dict[str, Any]]:
    """Fit and report as the command does, and return the scores."""
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = {str(name): column for name, column in zip(data.feature_names, data.data.T, strict=True)}
    table = pa.table(columns | {"diagnosis": data.target_names[data.target]})
    fitted = tables.fit_table(table, "diagnosis", FitOptions(seed=seed), source="breast cancer")
    tables.save_fitted(fitted, folder, "the breast cancer table of scikit-learn")
    return tables.tabulate_scores(fitted.scores)


def _label_table() -> list[dict[str, Any]]:
    from gaussify.likelihoods import LikelihoodMethod, SoftmaxLikelihood

    rows: list[dict[str, Any]] = []
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
