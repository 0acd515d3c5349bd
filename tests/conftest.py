"""Options of the whole test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="Write what the rewriter makes of each case as its expectation; read the diff you commit.",
    )
