"""How Sphinx builds the documentation: ``make docs``."""

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from api_pages import home_of, write_pages  # noqa: E402 - lies in _ext
from docutils import nodes  # noqa: E402
from sphinx import addnodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.environment import BuildEnvironment  # noqa: E402

import gaussify  # noqa: E402

project = "gaussify"
author = "the gaussify developers"
version = release = gaussify.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # MathJax from a package: pages load nothing from the network
    "sphinx_gallery.gen_gallery",
    "result_tables",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json"]
nitpicky = True
suppress_warnings = ["ref.footnote"]  # sections "References" are cited as a whole
nitpick_ignore_regex = [("py:.*", r"(torch|gpytorch|sklearn|matplotlib)\..*")]  # named, not linked: no network needed

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the sections of a docstring say it in words, with shapes
autosummary_ignore_module_all = False
napoleon_google_docstring = False
napoleon_use_param = False  # types of parameters are words, not references
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
templates_path = ["_templates"]

html_theme = "furo"
html_title = "gaussify"
html_static_path = ["_static"]
html_css_files = ["gaussify.css"]
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": "plot_",
    "abort_on_example_error": True,
    "show_memory": False,
    "download_all_examples": False,
    "min_reported_time": 1,
    "show_signature": False,
    "write_computation_times": False,  # its page would load scripts from the network
}
warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=DeprecationWarning)


_MADE_BY_SKLEARN = re.compile(r"set_\w+_request|get_metadata_routing")
_kept: dict[str, list[str]] = {}


def skip_member(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what classes have from other libraries, and the methods that scikit-learn adds to every estimator."""
    origin = getattr(getattr(value, "fget", value), "__module__", None) or "gaussify"
    return True if _MADE_BY_SKLEARN.fullmatch(name) or not origin.startswith("gaussify") else None


def keep_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep the docstring of an attribute, in which napoleon takes words before a colon for a type."""
    if what in {"attribute", "data", "property"}:
        _kept[name] = lines[:]


def put_back_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Undo what napoleon did to the docstring of an attribute."""
    if name in _kept:
        lines[:] = _kept.pop(name)


def resolve_passed_on(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Lead from a name of ``gaussify`` itself to the page of the module that it comes from."""
    name = str(node.get("reftarget", "")).removeprefix("gaussify.")
    if node.get("refdomain") != "py" or name not in gaussify.__all__:
        return None
    home = f"{home_of(name, gaussify)}.{name}"
    python, builder = env.get_domain("py"), app.builder
    return python.resolve_xref(env, node["refdoc"], builder, node["reftype"], home, node, content)


def setup(app: Sphinx) -> None:
    """Write the API pages before Sphinx looks for pages, and mend what the extensions make of docstrings."""
    write_pages(HERE / "api")
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", keep_docstring, priority=400)
    app.connect("autodoc-process-docstring", put_back_docstring, priority=600)
    app.connect("missing-reference", resolve_passed_on)
