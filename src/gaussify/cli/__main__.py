"""``python -m gaussify.cli``: the same as ``gaussify``."""

from gaussify.cli import main

main()
