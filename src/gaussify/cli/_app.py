"""The application that commands are added to.

Commands import what they need when they run, so that help is quick.
"""

import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from gaussify._version import __version__
from gaussify.exceptions import GaussifyError


class _Commands(TyperGroup):
    """Commands whose known errors end in one sentence and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = print_note  # type: ignore[assignment]
                return super().invoke(ctx)
        except GaussifyError as error:
            _stop(str(error), 2)
        except BrokenPipeError:  # whoever read what is printed has enough of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            _stop(f"{error.filename or 'A file'}: {str(error.strerror or error).rstrip('.')}.", 2)
        except KeyboardInterrupt:
            remedy = "; the same command goes on where this one ended" if ctx.invoked_subcommand == "reproduce" else ""
            _stop(f"Stopped{remedy}.", 130)


def print_note(message: Warning | str, *_: Any) -> None:
    """Tell of something that is no error; what else a warning comes with is left out."""
    typer.secho(f"Note: {message}", fg=typer.colors.YELLOW, err=True)


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
