"""Tests whose models nobody shards. Pure."""

from __future__ import annotations

from codemods.analysis.module import Module


def is_plain_test(module: Module) -> bool:
    """Whether a file is a test that does not speak of FSDP."""
    *folders, name = module.path.split("/")
    is_test = name.startswith("test_") or bool({"test", "tests"} & set(folders))
    return is_test and "fsdp" not in module.text.lower()
