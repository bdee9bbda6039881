"""Imports what the modules are made of, once for all processes; a package may be missing."""

from contextlib import suppress
from importlib import import_module

PACKAGES = ("torchvision.models", "timm", "transformers", "module_parts.measuring")

for name in PACKAGES:
    with suppress(ImportError):
        import_module(name)
