"""What is committed under ``results/``, as tables in Markdown; without Sphinx, so that tests can check every table."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results"


def read_summary(experiment: str) -> list[dict[str, str]]:
    """Return the records of a committed table, as text."""
    with (RESULTS / experiment / "laptop" / "summary.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_metadata(experiment: str) -> dict[str, Any] | None:
    """Return what is known about the run behind a committed table; None where nothing is committed."""
    path = RESULTS / experiment / "laptop" / "metadata.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def command(experiment: str) -> str:
    """Return the command that makes the committed results."""
    return f"gaussify reproduce {experiment} --preset laptop --out results"


def run_time(metadata: Mapping[str, Any]) -> str:
    """Return how long all tasks took together, and with how many threads they ran."""
    threads = sorted({session["threads"] for session in metadata["sessions"]})
    words = " or ".join("one thread" if number == 1 else f"{number} threads" for number in threads)
    return f"{duration(sum(task['seconds'] for task in metadata['tasks']))}, {words}"


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(9.4), duration(170.0), duration(7312.0)
    ('9 s', '3 min', '2.0 h')
    """
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table(experiment: str, options: Mapping[str, str]) -> list[str]:
    """Return lines of Markdown: the rows and columns of a committed table that a directive's options ask for.

    ``columns`` are names with headings, ``where`` values that rows must have, ``rename`` other texts for cells, and
    ``digits`` the number of significant digits.
    """
    columns, digits = pairs(options["columns"]), int(options.get("digits", 3))
    records = select(read_summary(experiment), options.get("where", ""))
    check_columns(records, [name for name, _ in columns])
    renamed = dict(pairs(options.get("rename", "")))
    numeric = [all(is_number(record[name] or "0") for record in records) for name, _ in columns]
    return [
        markdown_row([heading for _, heading in columns]),
        markdown_row(["---:" if right else "---" for right in numeric]),
        *(
            markdown_row([renamed.get(record[name], cell(record[name], digits)) for name, _ in columns])
            for record in records
        ),
    ]


def select(records: list[dict[str, str]], where: str) -> list[dict[str, str]]:
    """Return the records that have all of the given values; ``a | b`` stands for either.

    >>> select([{"n": "1"}, {"n": "2"}, {"n": "3"}], "n = 1 | 3")
    [{'n': '1'}, {'n': '3'}]
    """
    wanted = [(name, [one.strip() for one in values.split("|")]) for name, values in pairs(where)]
    check_columns(records, [name for name, _ in wanted])
    found = [record for record in records if all(record[name] in values for name, values in wanted)]
    missing = [one for name, values in wanted for one in values if one not in {record[name] for record in found}]
    if missing:
        raise LookupError(f"no row has {missing[0]!r} in {where!r}")
    return found


def check_columns(records: Sequence[Mapping[str, str]], names: Sequence[str]) -> None:
    """Raise an error for a column that is not there."""
    for name in names:
        if name not in records[0]:
            raise LookupError(f"no column {name!r}; there are {', '.join(records[0])}")


def pairs(text: str) -> list[tuple[str, str]]:
    """Return ``name = value`` pairs, a semicolon between two; a name alone is its own value.

    >>> pairs("nll = NLL; ece")
    [('nll', 'NLL'), ('ece', 'ece')]
    """
    split = [part.partition("=") for part in " ".join(text.split()).split(";") if part.strip()]
    return [(name.strip(), value.strip() or name.strip()) for name, _, value in split]


def cell(text: str, digits: int) -> str:
    """Return a number with so many significant digits, and other text as it is.

    >>> [cell(text, 2) for text in ("0.00769", "322.8", "10000", "1.0", "16.4 ± 3.0", "")]
    ['0.0077', '323', '10000', '1.0', '16.4 ± 3.0', '']
    """
    if not is_number(text) or text.lstrip("-").isdigit():
        return text
    number = float(text)
    return f"{number:.0f}" if 10**digits <= abs(number) < 1e6 else f"{number:#.{digits}g}".rstrip(".")


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def markdown_row(cells: Sequence[str]) -> str:
    r"""Return a row of a table.

    >>> markdown_row(["p", "KL(q||p)"])
    '| p | KL(q\\|\\|p) |'
    """
    escaped = (text.replace("|", "\\|") for text in cells)
    return f"| {' | '.join(escaped)} |"
