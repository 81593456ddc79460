"""API pages written from ``__all__`` of every public module, so that no public name can be left out."""

import ast
import importlib
import inspect
import pkgutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import gaussify

HIDDEN = ("gaussify.cli", "gaussify.experiments")  # commands; docs/paper.md and docs/tables.md are about them


@cache
def public_modules() -> list[str]:
    """Return ``gaussify`` and every module below it that promises names: an ``__all__`` that is not empty."""
    found = ["gaussify"]
    for module in pkgutil.walk_packages(gaussify.__path__, "gaussify."):
        if any(part.startswith("_") for part in module.name.split(".")) or module.name.startswith(HIDDEN):
            continue
        if getattr(importlib.import_module(module.name), "__all__", None):
            found.append(module.name)
    return sorted(found)


def home_of(name: str, module: ModuleType) -> str:
    """Return the public module that documents a name: the one that defines it, or passes it on from private modules.

    >>> import gaussify.linear.baselines
    >>> home_of("GPClassifier", gaussify), home_of("ADFClassifier", gaussify.linear.baselines)
    ('gaussify.gp', 'gaussify.linear.baselines')
    """
    origin = getattr(getattr(module, name), "__module__", module.__name__)
    homes = [home for home in public_modules() if f"{origin}.".startswith(f"{home}.")]
    return max(homes, key=len)


def is_constant(value: object) -> bool:
    """Return whether a value has no docstring of its own."""
    return not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value))


def constant_docstring(name: str, module: ModuleType) -> str:
    """Return the text below the assignment of a constant, in the module or its private ones."""
    for path in [Path(module.__file__ or ""), *sorted(Path(module.__file__ or "").parent.glob("_*.py"))]:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, following in pairwise(body):
            assigns = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name
            if assigns and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                return inspect.cleandoc(following.value.value)
    raise LookupError(f"{module.__name__}.{name} has no docstring below its assignment.")


def page(module_name: str) -> str:
    """Return the page of one module: its docstring, and a table of its names with a page for each."""
    module = importlib.import_module(module_name)
    names = [name for name in module.__all__ if name != "__version__"]
    constants = [name for name in names if is_constant(getattr(module, name))]
    modules = [name for name in names if inspect.ismodule(getattr(module, name))]
    documented = [name for name in names if name not in constants and name not in modules]
    own = [name for name in documented if home_of(name, module) == module_name]
    passed_on = [f"~{home_of(name, module)}.{name}" for name in documented if name not in own]
    lines = [module_name, "=" * len(module_name), "", f".. automodule:: {module_name}", ""]
    if own:
        lines += [".. autosummary::", "   :toctree: names", "   :nosignatures:", ""]
        lines += [*(f"   {name}" for name in own), ""]
    for target in passed_on:
        summary = inspect.getdoc(getattr(module, target.rpartition(".")[2])).splitlines()[0]
        lines += [f"- :obj:`{target}`: {summary}"]
    for name in modules:
        passed = getattr(module, name)
        lines += [f"- :mod:`~{passed.__name__}`: {inspect.getdoc(passed).splitlines()[0]}"]
    for name in constants:
        text = constant_docstring(name, module).splitlines()
        lines += ["", f".. py:data:: {name}", "", *(f"   {line}" for line in text)]
    if "__version__" in module.__all__:
        lines += ["- ``__version__``: The version, a string."]
    return "\n".join([*lines, ""])


def index() -> str:
    """Return the page that leads to all others."""
    pages = "\n".join(f"   {module}" for module in public_modules())
    lead = "Public is what these pages list; nothing else is promised. :mod:`gaussify` has what most people need."
    return f"API\n===\n\n{lead}\n\n.. toctree::\n   :maxdepth: 1\n\n{pages}\n"


def write_pages(folder: Path) -> None:
    """Write one page for each public module, and leave those alone that are as they should be."""
    folder.mkdir(exist_ok=True)
    pages = {module: page(module) for module in public_modules()} | {"index": index()}
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
