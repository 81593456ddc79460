"""``gaussify demo``: a tour of the library on bundled data, in about a minute."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gaussify import tables
from gaussify._atomic import replacing
from gaussify.cli._app import app
from gaussify.cli._output import Json, print_json, print_table
from gaussify.cli._reproduce import reproduce_steps
from gaussify.cli._tables import check_installed
from gaussify.tables import FitOptions

_PAGE, _TABLE = "demo.html", "breast-cancer"
_LABEL_TEXT = (
    "Each method turns a label into a Gaussian observation of every logit. alpha_eps is the small count that "
    "every class has before a label is seen. It keeps the logits finite and sets how certain one label is."
)
_STEPS = (
    (
        "digits",
        "Handwritten digits: every matching method, and other libraries",
        "Each label is turned into Gaussians once; the rest is least squares on the pixels. Scores are means over two "
        "splits, sorted by NLL. 'chosen' marks the alpha_eps with the best NLL on the training rows.",
    ),
    (
        "digits-stream",
        "Streaming: the same digits, one row at a time",
        "Each row is first predicted, then learnt in closed form. Curves are means over two streams, in blocks of 50 "
        "rows.",
    ),
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and their numbers.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed that fixes all randomness.")] = 0,
    as_json: Json = False,
) -> None:
    """Show the library on bundled data: classification, a comparison with baselines, and a stream.

    It takes about a minute and needs no download. The results are on one page, OUT/demo.html.

    [bold]Examples[/bold]

    gaussify demo

    gaussify demo --out demo-results
    """
    from gaussify.plotting import Page, image_html, paragraph_html, table_html

    check_installed("demo")
    page = Page("gaussify: Bayesian classification as cheap as least squares", "Results of 'gaussify demo'")
    answer: dict[str, object] = {"page": str(out / _PAGE)}

    def announce(title: str) -> None:
        if not as_json:
            typer.secho(f"\n{title}", bold=True)

    def show(name: str, title: str, rows: list[dict[str, Any]], *parts: str) -> None:
        page.section(title, *parts)
        answer[name] = rows
        if not as_json:
            print_table(rows)

    title = "Matching: the Gaussian logits of one label, by method (three classes, alpha_eps = 0.1)"
    announce(title)
    rows = _label_table()
    show("label", title, rows, paragraph_html(_LABEL_TEXT, is_pale=True), table_html(rows))
    title = "A table: is a tumour malignant? 569 rows, 30 measurements, 20 % of the rows held out"
    announce(title)
    rows = _fit_table(out / _TABLE, seed)
    show(
        _TABLE,
        title,
        rows,
        paragraph_html("'gaussify fit TABLE --target COLUMN' does this for any CSV or Parquet file.", is_pale=True),
        table_html(rows, best=min(range(len(rows)), key=lambda place: rows[place]["NLL"])),
        f'<p><a href="{_TABLE}/{tables.REPORT_FILE}">Report of this fit</a></p>',
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
    typer.echo(f"\nThe page with all results: {out / _PAGE}", err=True)


def _fit_table(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Fit and report as ``gaussify fit`` does, and return the scores."""
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
                "mean, own class": mean[0, 0].item(),
                "variance, own class": variance[0, 0].item(),
                "mean, other classes": mean[0, 1].item(),
                "variance, other classes": variance[0, 1].item(),
            }
        )
    return rows
