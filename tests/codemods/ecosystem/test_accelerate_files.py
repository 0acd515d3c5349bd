"""Accelerate's files: the rewritten file is launched by the real Accelerate and means the same; its text is
kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.parallelism_config import ParallelismConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from tool import Result, rewrite_in_place
from torch.testing._internal.distributed.fake_pg import FakeStore

from ecosystem.launched import Meaning, meaning_of_file

TOP = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "machine_rank": 0,
    "main_process_ip": "127.0.0.1",
    "main_process_port": 29500,
    "mixed_precision": "no",
    "num_machines": 2,
    "num_processes": 8,
}


def write(folder: Path, block: dict[str, object], **top: object) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**TOP, **top, "fsdp_config": block}))
    return path


def rewritten(path: Path, *options: str) -> Result:
    return rewrite_in_place(path.parent, list(options))


def block_of(path: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(path.read_text())["fsdp_config"]
    return found


def same(before: Meaning, after: Meaning) -> None:
    """The two jobs differ in their version and nothing else."""
    assert after.version == 2
    assert replace(before, version=2, replicas=after.replicas) == after


STRATEGIES = ["FULL_SHARD", "SHARD_GRAD_OP", "full_shard", 1, 2, "1", "2"]
BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "fsdp_version": st.sampled_from([1, "1"]),
        "fsdp_sharding_strategy": st.sampled_from(STRATEGIES),
        "fsdp_auto_wrap_policy": st.sampled_from(["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]),
        "fsdp_transformer_layer_cls_to_wrap": st.sampled_from(["LlamaDecoderLayer", "A,B"]),
        "fsdp_min_num_params": st.sampled_from([0, 2000, 100_000_000]),
        "fsdp_backward_prefetch": st.sampled_from(["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]),
        "fsdp_forward_prefetch": st.booleans(),
        "fsdp_offload_params": st.booleans(),
        "fsdp_state_dict_type": st.sampled_from(["FULL_STATE_DICT", "SHARDED_STATE_DICT"]),
        "fsdp_use_orig_params": st.booleans(),
        "fsdp_cpu_ram_efficient_loading": st.just(True),
        "fsdp_sync_module_states": st.just(True),
        "fsdp_activation_checkpointing": st.booleans(),
        "fsdp_ignored_modules": st.just("lm_head"),
    },
).filter(bool)


@settings(max_examples=60, deadline=None)
@given(block=BLOCKS, comments=st.data())
def test_every_block_means_the_same_and_keeps_its_comments(
    tmp_path_factory: pytest.TempPathFactory, block: dict[str, object], comments: st.DataObject
) -> None:
    path = write(tmp_path_factory.mktemp("block"), block)
    lines = path.read_text().splitlines()
    marks = comments.draw(
        st.lists(st.sampled_from(["", "beside", "above"]), min_size=len(lines), max_size=len(lines))
    )
    said = []
    for position, mark in enumerate(marks):
        if mark:
            said.append(f"# note {position}")
            indent = lines[position][: len(lines[position]) - len(lines[position].lstrip())]
            comment = f"  # note {position}" if mark == "beside" else f"{indent}# note {position}\n"
            lines[position] = lines[position] + comment if mark == "beside" else comment + lines[position]
    path.write_text("\n".join(lines) + "\n")
    before = meaning_of_file(path)
    result = rewritten(path)
    same(before, meaning_of_file(path))
    assert result.open_codes == []
    text = path.read_text()
    assert [c for c in said if c not in text] == []
    top = yaml.safe_load(text)
    assert {key: value for key, value in top.items() if key != "fsdp_config"} == TOP
    kept = [key for key in block if key in top["fsdp_config"]]
    assert [key for key in top["fsdp_config"] if key in kept] == sorted(kept)
    again = rewritten(path)
    assert path.read_text() == text
    assert again.open_codes == []


@pytest.mark.parametrize("name", ["HYBRID_SHARD", "HYBRID_SHARD_ZERO2", 4, 5])
def test_hybrid_sharding_becomes_the_mesh_that_fsdp1_builds(tmp_path: Path, name: object) -> None:
    path = write(tmp_path, {"fsdp_sharding_strategy": name})
    before = meaning_of_file(path)
    assert rewritten(path).open_codes == []
    after = meaning_of_file(path)
    same(before, after)
    assert after.replicas == (2, 4)
    sizes = load_config_from_file(str(path)).parallelism_config
    assert sizes == {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4}
    dist.init_process_group("fake", rank=5, world_size=8, store=FakeStore())
    try:
        mesh = ParallelismConfig(dp_replicate_size=2, dp_shard_size=4).build_device_mesh("cpu")
        shards = dist.get_process_group_ranks(mesh["dp_shard"].get_group())
        replicas = dist.get_process_group_ranks(mesh["dp_replicate"].get_group())
    finally:
        dist.destroy_process_group()
    # FSDP1 (`_init_intra_and_inter_node_groups`): shards within a machine, replicas of equal local rank.
    assert shards == [4, 5, 6, 7]
    assert replicas == [1, 5]


@pytest.mark.parametrize(
    ("block", "top", "code"),
    [
        ({"fsdp_sharding_strategy": "NO_SHARD"}, {}, "FM602"),
        ({"fsdp_sharding_strategy": 3}, {}, "FM602"),
        ({"fsdp_sharding_strategy": "SOMETHING"}, {}, "FM602"),
        ({"fsdp_sharding_strategy": "HYBRID_SHARD"}, {"num_processes": 7}, "FM603"),
        ({"fsdp_sharding_strategy": "HYBRID_SHARD"}, {"num_processes": 2}, "FM603"),
        (
            {"fsdp_sharding_strategy": "HYBRID_SHARD"},
            {"parallelism_config": {"parallelism_config_tp_size": 2}},
            "FM603",
        ),
        ({"fsdp_state_dict_type": "LOCAL_STATE_DICT"}, {}, "FM604"),
    ],
)
def test_what_fsdp2_cannot_do_is_left_with_one_todo_and_the_block_stays_fsdp1(
    tmp_path: Path, block: dict[str, object], top: dict[str, object], code: str
) -> None:
    path = write(tmp_path, block, **top)
    before = yaml.safe_load(path.read_text())
    result = rewritten(path)
    assert result.open_codes == [code]
    assert yaml.safe_load(path.read_text()) == before
    assert path.read_text().count(f"TODO(fsdp-migrate {code})") == 1
    text = path.read_text()
    assert rewritten(path).open_codes == [code]
    assert path.read_text() == text


def test_a_hybrid_block_without_sizes_is_left(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n")
    assert rewritten(path).open_codes == ["FM603"]
    assert block_of(path) == {"fsdp_sharding_strategy": "HYBRID_SHARD"}


def test_the_key_that_version_1_never_read_keeps_what_was_in_force(tmp_path: Path) -> None:
    path = write(tmp_path, {"fsdp_version": 1, "fsdp_reshard_after_forward": "SHARD_GRAD_OP"})
    before = meaning_of_file(path)
    assert before.reshards is True
    result = rewritten(path)
    same(before, meaning_of_file(path))
    assert result.codes.count("FM607") == 1


def test_where_both_keys_stand_the_strategy_counts(tmp_path: Path) -> None:
    block = {"fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_sharding_strategy": "SHARD_GRAD_OP"}
    path = write(tmp_path, block)
    before = meaning_of_file(path)
    rewritten(path)
    same(before, meaning_of_file(path))
    assert before.reshards is False
    assert "fsdp_sharding_strategy" not in block_of(path)


@pytest.mark.parametrize("sync", [{}, {"fsdp_sync_module_states": True}])
def test_weights_that_no_longer_come_from_rank_0_need_a_person_or_an_unsafe_fix(
    tmp_path: Path, sync: dict[str, object]
) -> None:
    path = write(tmp_path, {"fsdp_cpu_ram_efficient_loading": False, **sync})
    before = meaning_of_file(path)
    assert before.broadcasts
    original = path.read_text()
    assert rewritten(path).open_codes == ["FM605"]
    assert not meaning_of_file(path).broadcasts
    assert rewritten(path).open_codes == ["FM605"]  # the comment is still there
    path.write_text(original)
    assert rewritten(path, "--unsafe-fixes").open_codes == []
    same(before, meaning_of_file(path))
    assert "fsdp_sync_module_states" not in block_of(path)


def test_ranks_that_built_their_own_weights_still_do(tmp_path: Path) -> None:
    path = write(tmp_path, {"fsdp_cpu_ram_efficient_loading": False, "fsdp_sync_module_states": False})
    before = meaning_of_file(path)
    assert rewritten(path).open_codes == []
    same(before, meaning_of_file(path))


def test_names_without_the_prefix_are_understood(tmp_path: Path) -> None:
    path = write(tmp_path, {"sharding_strategy": 2, "min_num_params": 2000, "offload_params": True})
    before = meaning_of_file(path)
    assert rewritten(path).open_codes == []
    same(before, meaning_of_file(path))


def test_flow_style_quotes_windows_line_ends_and_a_byte_order_mark_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = (
        "\ufeff# head\r\n\"distributed_type\": 'FSDP'\r\nnum_processes: 8   # all\r\n"
        "fsdp_config: "
        "{fsdp_sharding_strategy: SHARD_GRAD_OP, 'fsdp_use_orig_params': true, fsdp_offload_params: no}\r\n"
        "mixed_precision: 'no'\r\n"
    )
    path.write_bytes(text.encode())
    rewritten(path)
    expected = text.replace(
        "{fsdp_sharding_strategy: SHARD_GRAD_OP, 'fsdp_use_orig_params': true, fsdp_offload_params: no}",
        "{fsdp_reshard_after_forward: false, fsdp_offload_params: no, fsdp_state_dict_type: FULL_STATE_DICT, "
        "fsdp_version: 2}",
    )
    assert path.read_bytes().decode() == expected


def test_the_last_line_without_an_end_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_offload_params: false")
    rewritten(path)
    assert path.read_text() == (
        "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_offload_params: false\n"
        "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2"
    )


def test_a_block_of_fsdp1_only_settings_is_written_anew(tmp_path: Path) -> None:
    path = write(tmp_path, {"fsdp_use_orig_params": True, "fsdp_backward_prefetch": "BACKWARD_PRE"})
    before = meaning_of_file(path)
    rewritten(path)
    same(before, meaning_of_file(path))
    assert block_of(path) == {"fsdp_version": 2, "fsdp_state_dict_type": "FULL_STATE_DICT"}


def test_json_files_of_accelerate_are_rewritten_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    block = {
        "fsdp_use_orig_params": True,
        "fsdp_sharding_strategy": "HYBRID_SHARD",
        "fsdp_forward_prefetch": False,
    }
    path.write_text(json.dumps({**TOP, "fsdp_config": block, "use_cpu": False}, indent=4))
    before = meaning_of_file(path)
    assert rewritten(path).open_codes == []
    after = meaning_of_file(path)
    same(before, after)
    assert after.replicas == (2, 4)


def test_a_json_file_that_needs_a_person_stays_and_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    block = {"fsdp_use_orig_params": True, "fsdp_cpu_ram_efficient_loading": False}
    path.write_text(json.dumps({**TOP, "fsdp_config": block}, indent=4))
    original = path.read_text()
    for _ in range(2):  # no comment in it could say what is left to do
        assert set(rewritten(path).open_codes) == {"FM601", "FM605"}
        assert path.read_text() == original
    block["fsdp_cpu_ram_efficient_loading"] = True
    path.write_text(json.dumps({**TOP, "fsdp_config": block}, indent=4))
    assert rewritten(path).open_codes == []
    assert json.loads(path.read_text())["fsdp_config"]["fsdp_version"] == 2


def test_an_alias_and_a_merge_key_are_left_and_said(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = (
        "base: &base\n  fsdp_sharding_strategy: FULL_SHARD\ndistributed_type: FSDP\nfsdp_config: *base\n"
        "---\nbase: &b {fsdp_use_orig_params: true}\ndistributed_type: FSDP\nfsdp_config:\n  <<: *b\n"
        "  fsdp_offload_params: false\n"
    )
    path.write_text(text)
    result = rewritten(path)
    assert result.open_codes == ["FM601", "FM601"]
    assert [
        line for line in path.read_text().splitlines() if "TODO" not in line and "#  " not in line
    ] == text.splitlines()


def test_a_comment_ignores_a_finding_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = (
        "distributed_type: FSDP\nfsdp_config:\n"
        "  fsdp_sharding_strategy: NO_SHARD  # fsdp-migrate: ignore[FM602] stays on FSDP1 this year\n"
    )
    path.write_text(text)
    result = rewritten(path)
    assert result.open_codes == []
    assert result.lines == [
        "config.yaml:3:3 FM602 ignored: `NO_SHARD` keeps every parameter whole; Accelerate's FSDP2 has no "
        "such layout: "
        "`reshard_after_forward: false` would shard them (stays on FSDP1 this year)"
    ]
    assert path.read_text() == text


def test_files_of_fsdp2_are_not_touched_and_dead_keys_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"fsdp_version": 2, "fsdp_sharding_strategy": "HYBRID_SHARD"})
    text = path.read_text()
    result = rewritten(path)
    assert path.read_text() == text
    assert result.codes == ["FM609"]


@pytest.mark.parametrize(
    "text",
    [
        "distributed_type: MULTI_GPU\nfsdp_config: {}\n",
        "distributed_type: FSDP\n",
        "fsdp_config: {fsdp_version: 2}\ndistributed_type: FSDP\n",
        "model:\n  fsdp_config:\n    param_offload: false\n    wrap_policy:\n      min_num_params: 0\n",
        "- fsdp\n- fsdp_config: 3\n",
    ],
)
def test_other_files_are_not_touched_and_nothing_is_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    result = rewritten(path)
    assert path.read_text() == text
    assert result.codes == []


def test_a_strategy_of_another_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    text = "base_model: x\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
    path.write_text(text)
    result = rewritten(path)
    assert path.read_text() == text
    assert result.codes == ["FM640"]
    assert "axolotl" in result.lines[0]


def test_axolotl_wants_a_list_where_a_trainer_wants_true(tmp_path: Path) -> None:
    """All that it says of FSDP is told once, and nothing of it is rewritten as a trainer's."""
    path = tmp_path / "axolotl.yaml"
    text = (
        "base_model: x\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\noutput_dir: out\n"
        "warmup_ratio: 0.1\nfsdp:\n  - full_shard\n  - auto_wrap\n"
        "fsdp_config:\n  fsdp_use_orig_params: false\n  fsdp_sharding_strategy: FULL_SHARD\n"
    )
    path.write_text(text)
    result = rewritten(path)
    assert path.read_text() == text
    assert result.codes == ["FM640"]
    assert "axolotl" in result.lines[0]
    path.write_text(text.replace("base_model: x\nmicro_batch_size: 1\n", ""))
    assert "FM610" in rewritten(path).codes


def test_a_template_that_is_no_yaml_is_reported_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: {{ strategy }}\n  {% if x %}\n"
    path.write_text(text)
    result = rewritten(path)
    assert path.read_text() == text
    assert result.codes == ["FM901"]


def test_tags_of_other_programs_are_texts(tmp_path: Path) -> None:
    other = tmp_path / "mkdocs.yml"
    other.write_text("emoji: !!python/name:material.to_svg\nnav:\n  - fsdp: fsdp_config.md\nkey: !ENV NAME\n")
    assert rewritten(other).codes == []
    path = tmp_path / "config.yaml"
    path.write_text(
        "distributed_type: FSDP\nname: !ENV NAME\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
    )
    assert "FM901" not in rewritten(path).codes
    assert "fsdp_version: 2" in path.read_text()
    assert "name: !ENV NAME" in path.read_text()
