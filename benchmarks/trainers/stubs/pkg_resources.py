"""Stands in for the old setuptools module: one name of it."""

from types import SimpleNamespace

packaging = SimpleNamespace()
