"""``python -m gaussify``: the same as ``gaussify``."""

from gaussify.cli import main

main()
