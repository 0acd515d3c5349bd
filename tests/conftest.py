"""Options of the whole test suite."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import settings

from fsdp_migrate import console

# Examples are judged by values, never by the clock; CI sees the same ones every time.
settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("suite")

# A suite started in the background is deaf to Ctrl-C, and so would be the programs that its tests interrupt.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What takes longest, first: whole files go to one worker (`--dist loadfile`, so that what a module shares is
# made once), and none should be left with a long one when the others have ended.
LONGEST_FIRST: tuple[str, ...] = (
    "verify/test_mutations.py",
    "verify/test_right_conversions.py",
    "codemods/test_case_runs.py",
    "codemods/test_places.py",
    "verify/test_gpu_script.py",
    "verify/test_reference_job.py",
    "verify/test_ends_before_time.py",
    "verify/test_own_places.py",
    "verify/test_after_training.py",
    "verify/test_verify_runs.py",
    "e2e/test_transformers.py",
    "planner/test_against_real_tensors.py",
    "cli/test_rewrite.py",
    "codemods/test_cases.py",
    "checkpoint_convert/test_resume_in_fsdp2.py",
    "checkpoint_convert/readers/test_bad_sources.py",
    "e2e/test_demo.py",
    "e2e/test_run_time_choices.py",
    "test_house.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {f"tests/{name}": rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


@pytest.fixture(autouse=True)
def _screen_as_it_was() -> Iterator[None]:
    """What a command run within this process sets for the screen (`-q`, `--no-color`) ends with its test."""
    yield
    console.configure(no_color=False, verbosity=0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="Write what the rewriter makes of each case as its expectation; read the diff you commit.",
    )
