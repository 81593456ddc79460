"""``gaussify demo``: what the library does, on bundled data, in about a minute."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gaussify._atomic import replacing
from gaussify.cli._app import app
from gaussify.cli._reproduce import print_table, reproduce_steps
from gaussify.cli._tables import tables_for

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
    title = "One label of three classes, alpha_eps = 0.1: the Gaussian that each method puts on the logits"
    rows = _label_table()
    typer.secho(title, bold=True)
    print_table(rows)
    page.section(title, table_html(rows))
    title = "A table: is a tumour malignant? 569 rows, 30 measurements, a fifth of the rows held out"
    typer.secho(f"\n{title}", bold=True)
    rows = _fit_table(tables, out / _TABLE)
    print_table(rows)
    page.section(
        title,
        paragraph_html("What 'gaussify fit TABLE --target COLUMN' does with any CSV or Parquet file.", is_pale=True),
        table_html(rows, best=min(range(len(rows)), key=lambda place: rows[place]["NLL"])),
        f'<p><a href="{_TABLE}/{tables.REPORT_FILE}">Its report</a></p>',
    )
    for name, title, words in _STEPS:
        typer.secho(f"\n{title}", bold=True)
        summary = reproduce_steps(name, "laptop", out, fresh=True)
        picture = out / name / "laptop" / f"{name.replace('-', '_')}.png"
        page.section(title, paragraph_html(words, is_pale=True), image_html(picture, title), table_html(summary))
    with replacing(out / _PAGE) as file:
        file.write(page.html().encode())
    typer.echo(f"\nAll of this is on one page: {out / _PAGE}", err=True)


def _fit_table(tables: Any, folder: Path) -> list[dict[str, Any]]:
    """Fit and report as the command does, and return the scores."""
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = {str(name): column for name, column in zip(data.feature_names, data.data.T, strict=True)}
    table = pa.table(columns | {"diagnosis": data.target_names[data.target]})
    fitted = tables.fit_table(table, "diagnosis", source="breast cancer")
    tables.save_fitted(fitted, folder, "the breast cancer table of scikit-learn")
    return tables.tabulate_scores(fitted.scores)


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
