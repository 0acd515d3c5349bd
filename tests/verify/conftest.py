"""Shared launches of the verifier's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bench import Bench, Benches, bench


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench with two ranks."""
    with bench(tmp_path_factory.mktemp("bench"), 2) as made:
        yield made


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    """Benches for the zoo's programs."""
    with Benches(tmp_path_factory.mktemp("zoo")) as made:
        yield made
