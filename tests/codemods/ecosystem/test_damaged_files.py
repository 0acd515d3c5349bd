"""Damaged configuration, scripts and notebooks: no crash, and what is written can be read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from codemods.configuration.shell import commands
from codemods.model import Options
from codemods.plan import plan_rewrite

SAMPLES = {
    "a.yaml": (
        "# all\ndistributed_type: FSDP\nnum_processes: 8\nnum_machines: 2\nfsdp_config:  # here\n"
        "  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_use_orig_params: 'false'  # no\n"
        "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_cpu_ram_efficient_loading: off\n  extra: [a, "
        "{b: c}]\n"
    ),
    "b.yaml": (
        "do_train: &x true\noutput_dir: |\n  a\n  b\nfsdp: [full_shard, auto_wrap]\n"
        "fsdp_config: {fsdp_min_num_params: 3}\n"
    ),
    "c.json": (
        '{\n  "distributed_type": "FSDP", "num_processes": 4,\n  "fsdp_config": {"sharding_strategy": 2,\n'
        '    "fsdp_backward_prefetch": "BACKWARD_PRE"}, "x": [1, 2.5e3, "\\u00e9", null]\n}\n'
    ),
    "d.sh": (
        'ARGS=(--fsdp "full_shard auto_wrap" # x\n  --fsdp_min_num_params 3)\naccelerate launch '
        "--fsdp_sharding_strategy 1 \\\n"
        "  --fsdp_offload_params $X train.py --fsdp 'shard_grad_op' `echo` <<EOF\nEOF\n"
    ),
    "e.ipynb": json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "source": ["%time x\n", "from accelerate import FullyShardedDataParallelPlugin"],
                },
                {
                    "cell_type": "code",
                    "source": "p = FullyShardedDataParallelPlugin(use_orig_params=True)\n!ls \\\n a",
                },
            ],
            "metadata": {},
        },
        indent=1,
    ),
}
PIECES = [
    "",
    "\n",
    "#",
    '"',
    "'",
    "{",
    "}",
    "[",
    ":",
    ",",
    "\\",
    "$(",
    "- ",
    "&a ",
    "*a",
    "<<: *x",
    "\t",
    "\r\n",
    "é",
    "\x00",
    "  ",
]
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=4
)


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=100, deadline=None)
@given(edits=EDITS)
def test_no_damage_makes_a_crash_or_an_unreadable_result(
    tmp_path_factory: pytest.TempPathFactory, name: str, edits: list[tuple[float, int, str]]
) -> None:
    text = SAMPLES[name]
    for where, length, piece in edits:
        start = int(where * len(text))
        text = text[:start] + piece + text[start + length :]
    folder = tmp_path_factory.mktemp("damaged")
    (folder / name).write_bytes(text.encode())
    done = plan_rewrite(folder, [name], Options(unsafe_fixes=True))
    for change in done.changes:
        assert _readable(change.path, change.after.decode())
        (folder / change.path).write_bytes(change.after)
    again = plan_rewrite(folder, [name], Options(unsafe_fixes=True))
    assert [change.path for change in again.changes if change.path == name] == []


def _readable(path: str, text: str) -> bool:
    match Path(path).suffix:
        case ".yaml":
            return bool(list(yaml.safe_load_all(text)))
        case ".sh":
            return bool(commands(text))
        case ".py":
            return bool(compile(text, path, "exec"))
    return bool(json.loads(text))
