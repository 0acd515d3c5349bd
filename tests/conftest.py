"""Options of the whole test suite."""

import os
import signal
import threading

import pytest
from hypothesis import settings

# Examples are judged by values, never by the clock; CI sees the same ones every time.
settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("suite")

# A suite started in the background is deaf to Ctrl-C, and so would be the programs that its tests interrupt.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="Write what the rewriter makes of each case as its expectation; read the diff you commit.",
    )
