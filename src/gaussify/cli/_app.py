"""The application that commands are added to.

Commands import what they need when they run, so that help is quick.
"""

from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from gaussify._version import __version__
from gaussify.exceptions import GaussifyError


class _Commands(TyperGroup):
    """Commands whose known errors end in one sentence and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GaussifyError as error:
            _stop(str(error), 2)
        except OSError as error:
            _stop(f"{error.filename or 'A file'}: {error.strerror or error}.", 2)
        except KeyboardInterrupt:
            _stop("Stopped; the same command goes on where this one ended.", 130)


def _stop(message: str, code: int) -> NoReturn:
    typer.secho(f"Error: {message}", fg=typer.colors.RED, err=True)
    raise typer.Exit(code)


app = typer.Typer(
    name="gaussify",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"gaussify {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _gaussify(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Bayesian classification as cheap as least squares."""
