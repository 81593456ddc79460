"""Pages of results: one HTML file with tables and figures, which loads nothing from other files or sites."""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaussify._optional import import_optional
from gaussify.plotting._style import DPI, STYLE

if TYPE_CHECKING:
    import matplotlib.figure

_CSS = """
:root { --ink: #1c2733; --pale: #5c6b7a; --line: #dfe5ea; --back: #f5f7f9; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; } .pale { color: var(--pale); }
section { background: #fff; border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem 1.2rem;
  margin: 1rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--pale); font-weight: 600; white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
tr.best td { font-weight: 600; }
figure { margin: 0; overflow-x: auto; }
figure img { display: block; width: 100%; min-width: var(--least); max-width: var(--width); height: auto;
  margin: 0 auto; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem 2.2rem; margin: .9rem 0 .2rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.2; color: var(--accent); }
.tile span { color: var(--pale); font-size: .88rem; }
code { background: var(--back); padding: .1rem .3rem; border-radius: .3rem; overflow-wrap: anywhere; }
"""


_INCH, _LEAST_INCH = 120, 68  # most and fewest pixels, so that 9 points are 15 to 8.5; narrower windows scroll
# names of columns and classes may hold dollar signs, which are no formulas
_PAGE_STYLE = {"svg.hashsalt": "gaussify", "axes.axisbelow": True, "text.parse_math": False}


class Page:
    """A page that grows section by section.

    Examples
    --------
    >>> page = Page("Fruit")
    >>> page.section("Scores", table_html([{"name": "fig", "accuracy": 0.9}]), paragraph_html("All is well."))
    >>> "<h2>Scores</h2>" in page.html(), "http" in page.html()
    (True, False)
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title, self._subtitle = title, subtitle
        self._sections: list[str] = []

    def section(self, title: str, *parts: str) -> None:
        """Add a section of parts, which are HTML."""
        heading = f"<h2>{escape(title)}</h2>" if title else ""
        self._sections.append(f"<section>{heading}{''.join(parts)}</section>")

    def html(self) -> str:
        """Return the page as HTML."""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<link rel="icon" href="data:,">\n'  # so that browsers do not request an icon
            f"<title>{escape(self._title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n"
            f'<header><h1>{escape(self._title)}</h1><p class="pale">{escape(self._subtitle)}</p></header>\n'
            + "\n".join(self._sections)
            + "\n</main>\n</body>\n</html>\n"
        )


def paragraph_html(text: str, *, is_pale: bool = False) -> str:
    """Return text as a paragraph.

    Examples
    --------
    >>> paragraph_html("a < b")
    '<p>a &lt; b</p>'
    """
    return f'<p class="pale">{escape(text)}</p>' if is_pale else f"<p>{escape(text)}</p>"


def tiles_html(numbers: Mapping[str, str]) -> str:
    """Return large numbers, each with its name below.

    Examples
    --------
    >>> tiles_html({"accuracy": "97 %"})
    '<div class="tiles"><div class="tile"><b>97 %</b><span>accuracy</span></div></div>'
    """
    tiles = (f'<div class="tile"><b>{escape(n)}</b><span>{escape(name)}</span></div>' for name, n in numbers.items())
    return f'<div class="tiles">{"".join(tiles)}</div>'


def table_html(records: Sequence[Mapping[str, object]], *, best: int | None = None) -> str:
    """Return records as a table, with numbers aligned right and rounded to four digits; row ``best`` is highlighted.

    Examples
    --------
    >>> table_html([{"name": "fig", "nll": 0.123456}])
    '<div class="wide"><table>...<tbody><tr><td>fig</td><td class="number">0.1235</td></tr></tbody></table></div>'
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    numeric = {name: any(isinstance(record.get(name), int | float) for record in records) for name in columns}
    marks = {name: ' class="number"' if numeric[name] else "" for name in columns}
    head = "".join(f"<th{marks[name]}>{escape(name)}</th>" for name in columns)
    body = "".join(
        ('<tr class="best">' if place == best else "<tr>")
        + "".join(f"<td{marks[name]}>{escape(_cell(record.get(name)))}</td>" for name in columns)
        + "</tr>"
        for place, record in enumerate(records)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figures_html(*figures: str) -> str:
    """Return figures side by side, or below each other if there is no room.

    Examples
    --------
    >>> figures_html("<figure></figure>")
    '<div class="figures"><figure></figure></div>'
    """
    return f'<div class="figures">{"".join(figures)}</div>'


def image_html(path: Path, description: str) -> str:
    """Return a PNG file in the house style as HTML that holds the picture itself.

    Examples
    --------
    >>> import tempfile
    >>> from gaussify.plotting import figure_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with figure_file(Path(folder), "empty", 1, 1, width=3.0, height=2.0):
    ...         pass
    ...     image_html(Path(folder, "empty.png"), "empty")
    '<figure style="--least: 204px"><img alt="empty" src="data:image/png;base64,...
    """
    data = path.read_bytes()
    width = int.from_bytes(data[16:20], "big") / DPI  # the first chunk of a PNG begins with its width in pixels
    return f'<figure style="--least: {round(_LEAST_INCH * width)}px">{_img(data, "png", description)}</figure>'


class DrawnFigure:
    """A figure and its axes, and its HTML once it is complete."""

    def __init__(self, figure: "matplotlib.figure.Figure", axes: Any) -> None:
        self.figure, self.axes, self.html = figure, axes, ""


@contextmanager
def figure_html(description: str, *, width: float = 4.6, height: float = 3.2, **options: Any) -> Iterator[DrawnFigure]:
    """Yield a figure in the house style to draw on; on exit its ``html`` is set, which holds the picture itself.

    Sizes are in inches. ``options`` are passed to :meth:`matplotlib.figure.Figure.subplots`.

    Examples
    --------
    >>> with figure_html("a line") as drawn:
    ...     _ = drawn.axes.plot([0, 1], [0, 1])
    >>> drawn.html[:51], 'alt="a line"' in drawn.html
    ('<figure style="--width: 552px; --least: 313px"><img', True)
    """
    matplotlib = import_optional("matplotlib", extra="plot", needed_by="gaussify.plotting")
    figures = import_optional("matplotlib.figure", extra="plot", needed_by="gaussify.plotting")
    with matplotlib.rc_context(STYLE | _PAGE_STYLE):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        drawn = DrawnFigure(figure, figure.subplots(**options))
        yield drawn
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    picture = _img(buffer.getvalue(), "svg+xml", description)
    sizes = f"--width: {round(_INCH * width)}px; --least: {round(_LEAST_INCH * width)}px"
    drawn.html = f'<figure style="{sizes}">{picture}</figure>'


def _img(data: bytes, kind: str, description: str) -> str:
    return f'<img alt="{escape(description)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
