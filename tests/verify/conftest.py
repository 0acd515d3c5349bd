"""Shared launches of the verifier's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bench import Bench, Benches, bench


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with two ranks."""
    return bench(tmp_path_factory.mktemp("bench"), 2)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Benches:
    """Benches for the zoo's programs."""
    return Benches(tmp_path_factory.mktemp("zoo"))
