"""A file on its way to its new text."""

from __future__ import annotations

from dataclasses import replace

from codemods.analysis.module import Module


def draft_of(module: Module, text: str) -> Module:
    """The module that a file would be with another text.

    Raises:
        SyntaxError: the text is no valid Python.
    """
    return module if text == module.text else Module(replace(module.source, data=b"", text=text))
