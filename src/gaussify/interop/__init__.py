"""Adapters to other libraries, each a module to import by name, as in ``from gaussify.interop.river import ...``."""

__all__: list[str] = []
