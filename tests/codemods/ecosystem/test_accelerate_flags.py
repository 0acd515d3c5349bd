"""`accelerate launch` flags in scripts: the real launcher parses the result and means the same."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tool import Result, rewrite_in_place

from ecosystem.launched import Meaning, environment_of, meaning

LAUNCH = "accelerate launch --use_fsdp --num_processes 2 --mixed_precision no"


def launched(text: str) -> Meaning:
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    return meaning(environment_of([*words[2 : words.index("train.py")]]))


def rewritten(path: Path, text: str) -> Result:
    path.write_text(text)
    return rewrite_in_place(path.parent)


@pytest.mark.parametrize(
    "flags",
    [
        "--fsdp_sharding_strategy SHARD_GRAD_OP --fsdp_use_orig_params true",
        "--fsdp_sharding_strategy=1 --fsdp_state_dict_type SHARDED_STATE_DICT --fsdp_backward_prefetch "
        "BACKWARD_PRE",
        "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap "
        "LlamaDecoderLayer",
        "--fsdp_offload_params true --fsdp_forward_prefetch false --fsdp_sync_module_states true",
        "--fsdp-version 1 --fsdp-sharding-strategy SHARD_GRAD_OP --fsdp-state-dict-type=SHARDED_STATE_DICT "
        "--fsdp-use-orig-params true",
    ],
)
@pytest.mark.parametrize("separator", [" ", " \\\n    "])
def test_flags_mean_the_same_under_fsdp2(tmp_path: Path, flags: str, separator: str) -> None:
    parts = [
        LAUNCH,
        *flags.replace(" --", "\n--").split("\n"),
        "train.py --lr 1 --fsdp_sharding_strategy mine",
    ]
    text = separator.join(parts) + "\n"
    before = launched(text)
    path = tmp_path / "run.sh"
    assert rewritten(path, text).open_codes == []
    now = path.read_text()
    after = launched(now)
    assert after.version == 2
    assert replace(before, version=2) == after
    assert now.endswith("train.py --lr 1 --fsdp_sharding_strategy mine\n")
    assert rewritten(path, now).codes == []
    assert path.read_text() == now


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ("--fsdp_sharding_strategy HYBRID_SHARD", "FM603"),
        ("--fsdp_sharding_strategy NO_SHARD", "FM602"),
        ("--fsdp_sharding_strategy $STRATEGY", "FM615"),
        ("--fsdp_sharding_strategy FULL_SHARD --fsdp_cpu_ram_efficient_loading false", "FM605"),
    ],
)
def test_what_needs_a_person_gets_a_comment_before_the_command(tmp_path: Path, flags: str, code: str) -> None:
    path = tmp_path / "run.sh"
    result = rewritten(path, f"set -e\n{LAUNCH} \\\n  {flags} \\\n  train.py\n")
    assert result.open_codes == [code]
    lines = path.read_text().splitlines()
    assert lines[0] == "set -e"
    assert lines[1].startswith(f"# TODO(fsdp-migrate {code}): ")
    text = path.read_text()
    assert rewritten(path, text).open_codes == [code]
    assert path.read_text() == text


def test_what_a_config_file_may_say_is_not_overridden(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    rewritten(path, "accelerate launch --config_file c.yaml --fsdp_sharding_strategy FULL_SHARD train.py\n")
    assert path.read_text() == (
        "accelerate launch --config_file c.yaml --fsdp_version 2 --fsdp_reshard_after_forward true train.py\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "torchrun train.py --fsdp --fsdp_sharding_strategy full\n",
        "torchrun train.py --fsdp true\n",
        "python launch.py --fsdp_offload_params 1 # --fsdp full_shard\n",
        "cat <<EOF\n--fsdp full_shard\nEOF\n",
        "echo 'use --fsdp \"full_shard auto_wrap\"'\n",
    ],
)
def test_flags_of_other_programs_are_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.sh"
    assert rewritten(path, text).codes == []
    assert path.read_text() == text


def test_environment_variables_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    text = "export FSDP_SHARDING_STRATEGY=FULL_SHARD\nFSDP_USE_ORIG_PARAMS=true python x.py\n"
    assert rewritten(path, text).codes == ["FM615", "FM615"]
    assert path.read_text() == text


def test_a_form_feed_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    text = "# a\fb\fc\n# \u2028\naccelerate launch --fsdp_sharding_strategy NO_SHARD train.py\n"
    assert rewritten(path, text).open_codes == ["FM602"]
    once = path.read_text()
    assert once.count("TODO(fsdp-migrate FM602)") == 1
    assert rewritten(path, once).open_codes == ["FM602"]
    assert path.read_text() == once


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu", "Containerfile", "train.dockerfile"])
def test_the_list_of_an_image_is_read_whatever_its_file_is_called(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = 'FROM x\nCMD ["accelerate", "launch", "--fsdp_sharding_strategy", "FULL_SHARD", "train.py"]\n'
    assert rewritten(path, text).open_codes == []
    assert '"--fsdp_version", "2"' in path.read_text()
