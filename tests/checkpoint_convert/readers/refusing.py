"""Sources that are refused, with a message that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_convert.errors import CheckpointError
from checkpoint_convert.readers.open import ReadOptions, open_source


def fails(
    kind: type[CheckpointError], reason: str, paths: list[Path], options: ReadOptions | None = None
) -> CheckpointError:
    """Opening fails with this kind of error, whose message fits and which says what to do."""
    with pytest.raises(kind, match=reason) as caught, open_source(paths, options):
        pass
    assert caught.value.hint
    return caught.value
