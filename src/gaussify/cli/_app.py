"""The typer application, to which each module adds its commands.

Commands import heavy modules when they run, so that ``--help`` is quick.
"""

import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from gaussify._version import __version__
from gaussify.exceptions import GaussifyError

_OF_EXPERIMENTS = ("list", "reproduce")


class _Commands(TyperGroup):
    """Commands whose known errors become one sentence and exit code 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order that a new user needs them."""
        return sorted(super().list_commands(ctx), key=lambda name: (name in _OF_EXPERIMENTS, name != "demo"))

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = print_note  # type: ignore[assignment]
                return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # which some versions of typer add
            raise
        except GaussifyError as error:
            _stop(str(error), 2)
        except BrokenPipeError:  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            _stop(f"{error.filename or 'A file'}: {str(error.strerror or error).rstrip('.')}.", 2)
        except KeyboardInterrupt:
            remedy = " The same command resumes the run." if ctx.invoked_subcommand == "reproduce" else ""
            _stop(f"Stopped.{remedy}", 130)


def print_note(message: Warning | str, *_: Any) -> None:
    """Print a warning as a note; category and line of the warning are left out."""
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
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Bayesian classification as cheap as least squares."""
