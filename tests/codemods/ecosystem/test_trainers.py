"""Transformers trainers in Python, YAML, JSON and shell: the real `TrainingArguments` accepts the result, and
it means what the FSDP1 trainer did.

What an FSDP1 trainer did is written out here from transformers 4.30 to 4.57
(`TrainingArguments.__post_init__`): units only with `auto_wrap`, by size where `min_num_params` was set; the
installed one reads the same settings differently.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.utils import FullyShardedDataParallelPlugin
from hypothesis import given, settings
from hypothesis import strategies as st
from tool import Result, rewrite_in_place
from transformers import HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments

from ecosystem.launched import environment, of_plugin

Settings = dict[str, Any]


def meaning(args: TrainingArguments) -> Settings:
    """What the real trainer makes of its arguments."""
    assert args.fsdp is True
    with environment({}):
        plugin = FullyShardedDataParallelPlugin(**args.fsdp_plugin_args)
    assert plugin.fsdp_version == 2
    found = of_plugin(plugin)
    found["smallest"] = found["smallest"] if found["policy"] == "size_based_auto_wrap_policy" else None
    return {**found, "loads_once": args.fsdp_plugin_args["cpu_ram_efficient_loading"]}


def built(told: Settings) -> Settings:
    with environment({}):
        return meaning(TrainingArguments(output_dir="unused", **told))


def fsdp1_meaning(words: list[str], config: Settings) -> Settings:
    """What transformers 4 did."""
    config = {key.removeprefix("fsdp_"): value for key, value in config.items()}
    smallest = config.get("min_num_params", 0)
    wraps = "auto_wrap" in words
    policy = "None"
    if wraps:
        policy = "size_based_auto_wrap_policy" if smallest > 0 else "transformer_auto_wrap_policy"
    layers = config.get("transformer_layer_cls_to_wrap") or []
    layers = [layers] if isinstance(layers, str) else layers
    return {
        "reshards": "full_shard" in words,
        "state_dict": config.get("state_dict_type", "FULL_STATE_DICT"),
        "policy": policy,
        "layers": tuple(layers) if policy == "transformer_auto_wrap_policy" else (),
        "smallest": smallest if policy == "size_based_auto_wrap_policy" else None,
        "offloads": "offload" in words,
        "checkpoints": config.get("activation_checkpointing", False),
        "loads_once": config.get("cpu_ram_efficient_loading", False),
    }


WORDS = st.tuples(st.sampled_from(["full_shard", "shard_grad_op"]), st.booleans(), st.booleans()).map(
    lambda t: [t[0], *(["auto_wrap"] if t[1] else []), *(["offload"] if t[2] else [])]
)
CONFIGS = st.tuples(
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "transformer_layer_cls_to_wrap": st.sampled_from(["A", ["A"], ["A", "B"]]),
            "min_num_params": st.sampled_from([0, 2000]),
            "backward_prefetch": st.sampled_from(["backward_pre", "backward_post"]),
            "forward_prefetch": st.booleans(),
            "limit_all_gathers": st.booleans(),
            "use_orig_params": st.booleans(),
            "sync_module_states": st.booleans(),
            "cpu_ram_efficient_loading": st.booleans(),
            "activation_checkpointing": st.booleans(),
            "state_dict_type": st.sampled_from(["FULL_STATE_DICT", "SHARDED_STATE_DICT"]),
            "version": st.just(1),
            "xla": st.just(False),
        },
    ),
).map(lambda t: {("fsdp_" if t[0] else "") + key: value for key, value in t[1].items()})


def rewritten(folder: Path, *options: str) -> Result:
    return rewrite_in_place(folder, list(options))


@settings(max_examples=60, deadline=None)
@given(words=WORDS, config=CONFIGS)
def test_yaml_json_and_python_mean_what_fsdp1_did(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], config: Settings
) -> None:
    folder = tmp_path_factory.mktemp("trainer")
    top: Settings = {"do_train": True, "fsdp": " ".join(words), "per_device_train_batch_size": 1}
    if config:
        top["fsdp_config"] = config
    (folder / "train.yaml").write_text(yaml.safe_dump(top, sort_keys=False))
    (folder / "train.json").write_text(json.dumps(top, indent=2))
    arguments = ",\n    ".join(f"{key}={top[key]!r}" for key in top if key.startswith("fsdp"))
    code = f"from transformers import TrainingArguments\n\nargs = TrainingArguments(\n    {arguments},\n)\n"
    (folder / "train.py").write_text(code)
    assert rewritten(folder).open_codes == []
    expected = fsdp1_meaning(words, config)
    made: Settings = {}
    exec((folder / "train.py").read_text().replace("TrainingArguments(", "dict("), made)
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    for told in (yaml.safe_load(texts["train.yaml"]), json.loads(texts["train.json"]), made["args"]):
        assert told["fsdp"] is True
        left = {key.removeprefix("fsdp_") for key in told["fsdp_config"]}
        assert not left & {"backward_prefetch", "forward_prefetch", "use_orig_params", "sync_module_states"}
        assert built({key: told[key] for key in ("fsdp", "fsdp_config")}) == expected
    assert rewritten(folder).open_codes == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == texts


@pytest.mark.parametrize(
    ("flags", "words", "config"),
    [
        (
            '--fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer',
            ["full_shard", "auto_wrap"],
            {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
        ),
        (
            "--fsdp_transformer_layer_cls_to_wrap 'A,B' --fsdp 'shard_grad_op auto_wrap offload'",
            ["shard_grad_op", "auto_wrap", "offload"],
            {"transformer_layer_cls_to_wrap": ["A", "B"]},
        ),
        ("--fsdp full_shard auto_wrap", ["full_shard", "auto_wrap"], {}),
        ("--fsdp=full_shard", ["full_shard"], {}),
        (
            "--fsdp 'full_shard auto_wrap' --fsdp_min_num_params 2000",
            ["full_shard", "auto_wrap"],
            {"min_num_params": 2000},
        ),
        (
            "--fsdp 'full_shard auto_wrap' --fsdp_config "
            '\'{"use_orig_params": true, "min_num_params": 5}\'',
            ["full_shard", "auto_wrap"],
            {"min_num_params": 5},
        ),
    ],
)
@pytest.mark.parametrize("shape", ["one line", "many lines", "array"])
def test_launch_flags_parse_and_mean_what_fsdp1_did(
    tmp_path: Path, flags: str, words: list[str], config: Settings, shape: str
) -> None:
    before, after = "torchrun train.py --output_dir out --bf16 False", "--do_train --seed 3"
    script = {
        "one line": f"#!/bin/bash\n{before} {flags} {after}  # go\n",
        "many lines": f"#!/bin/bash\n{before} \\\n  {flags} \\\n  {after}\n",
        "array": f"#!/bin/bash\nARGS=(\n  {before}\n  # flags\n  {flags}\n  {after}\n)\n",
    }[shape]
    path = tmp_path / "train.sh"
    path.write_text(script)
    assert rewritten(tmp_path).open_codes == []
    text = path.read_text()
    words_now = shlex.split(text.replace("ARGS=(", "").replace("\n)", "").replace("\\\n", ""), comments=True)
    with environment({}):
        (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words_now[2:])
    assert meaning(args) == fsdp1_meaning(words, config)
    assert args.do_train and args.seed == 3
    assert text.count("#") == script.count("#")
    assert rewritten(tmp_path).codes == []
    assert path.read_text() == text


def test_a_dictionary_and_a_condition_in_python_are_rewritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import Seq2SeqTrainingArguments\n\n\n"
        "class Arguments(Seq2SeqTrainingArguments):\n    pass\n\n\n"
        "def main(large):\n"
        "    config = {\n"
        '        "transformer_layer_cls_to_wrap": ["A"],  # layers\n'
        '        "use_orig_params": True,\n'
        '        "activation_checkpointing": large,\n'
        "    }\n"
        '    return Arguments(fsdp="shard_grad_op auto_wrap" if large else "", fsdp_config=config)\n'
    )
    result = rewritten(tmp_path)
    assert result.open_codes == []
    assert path.read_text().splitlines()[8:] == [
        "    config = {",
        '        "version": 2,',
        '        "reshard_after_forward": False,',
        '        "transformer_layer_cls_to_wrap": ["A"],  # layers',
        '        "activation_checkpointing": large,',
        "    }",
        '    return Arguments(fsdp=True if large else "", fsdp_config=config)',
    ]
    made: Settings = {}
    exec(path.read_text(), made)
    made["Arguments"] = Seq2SeqTrainingArguments
    with environment({}):
        assert meaning(made["main"](True)) == fsdp1_meaning(
            ["shard_grad_op", "auto_wrap"],
            {"transformer_layer_cls_to_wrap": ["A"], "activation_checkpointing": True},
        )
        assert not made["main"](False).fsdp


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ('fsdp="hybrid_shard auto_wrap"', "FM617"),
        ('fsdp=["no_shard"]', "FM617"),
        ('fsdp="auto_wrap"', "FM617"),
        ('fsdp="full_shard", fsdp_config=load("x.json")', "FM617"),
        ('fsdp="shard_grad_op auto_wrap", fsdp_config="conf.json"', "FM617"),
        ('fsdp="full_shard" if x else "shard_grad_op"', "FM617"),
        ('fsdp="full_shard", fsdp_config={"state_dict_type": "LOCAL_STATE_DICT"}', "FM617"),
        ('**{"fsdp": "full_shard auto_wrap"}', "FM617"),
    ],
)
def test_what_needs_a_person_is_left_with_a_remedy(tmp_path: Path, argument: str, code: str) -> None:
    path = tmp_path / "train.py"
    source = f"from transformers import TrainingArguments\n\nargs = TrainingArguments('out', {argument})\n"
    path.write_text(source)
    result = rewritten(tmp_path)
    assert result.open_codes == [code]
    text = path.read_text()
    assert [line for line in text.splitlines() if not line.startswith("#")] == source.splitlines()
    assert f"# TODO(fsdp-migrate {code}): " in text
    assert rewritten(tmp_path).open_codes == [code]
    assert path.read_text() == text


@pytest.mark.parametrize(
    "source",
    [
        "from transformers import TrainingArguments\n\nargs = TrainingArguments('out', fsdp='')\n",
        "from transformers import TrainingArguments\n\nargs = TrainingArguments('out', fsdp=True)\n",
        "from transformers import TrainingArguments\n\n"
        "args = TrainingArguments('out', fsdp='full_shard', fsdp_config={'version': 2})\n",
        "from transformers import TrainingArguments\n\n"
        "args = TrainingArguments('out', fsdp='full_shard', fsdp_config={'xla': True})\n",
        "from mine import Options\n\nargs = Options(fsdp='yes', fsdp_config={'a': 1})\n",
    ],
)
def test_what_is_fsdp2_xla_off_or_no_trainer_is_not_touched(tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_text(source)
    assert rewritten(tmp_path).codes == []
    assert (tmp_path / "train.py").read_text() == source


def test_a_config_file_that_the_call_names_is_rewritten_with_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from transformers import TrainingArguments\n\n"
        "args = TrainingArguments('out', fsdp='full_shard auto_wrap', fsdp_config='fsdp.json')\n"
    )
    layers = '"transformer_layer_cls_to_wrap": ["A"]'
    config = f'{{\n\t{layers},\n\t"backward_prefetch": "backward_pre",\n\t"xla": false\n}}\n'
    (tmp_path / "fsdp.json").write_text(config)
    assert rewritten(tmp_path).open_codes == []
    assert (tmp_path / "fsdp.json").read_text() == (
        '{\n\t"transformer_layer_cls_to_wrap": ["A"],\n\t"version": 2,\n\t"xla": false\n}\n'
    )
    assert "fsdp=True, fsdp_config='fsdp.json'" in (tmp_path / "train.py").read_text()
    told = {"fsdp": True, "fsdp_config": str(tmp_path / "fsdp.json")}
    assert built(told) == fsdp1_meaning(["full_shard", "auto_wrap"], {"transformer_layer_cls_to_wrap": ["A"]})


@pytest.mark.parametrize(
    "text",
    [
        '{"fsdp": "full_shard", "note": "not a trainer"}\n',
        '{"fsdp_transformer_layer_cls_to_wrap": ["A"], "other_program": 1}\n',
        '{"min_num_params": 3}\n',
        '{"xla": true, "transformer_layer_cls_to_wrap": ["A"], "xla_fsdp_settings": {}}\n',
        '{"version": 2, "min_num_params": 3, "fsdp_config": 1}\n',
    ],
)
def test_json_that_is_no_fsdp1_trainer_is_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    assert rewritten(tmp_path).codes == []
    assert path.read_text() == text


def test_hybrid_and_no_shard_in_yaml_are_left(tmp_path: Path) -> None:
    for word in ("hybrid_shard", "no_shard"):
        path = tmp_path / f"{word}.yaml"
        path.write_text(f"do_train: true\nnum_train_epochs: 1\nfsdp: {word} auto_wrap\n")
    assert rewritten(tmp_path).open_codes == ["FM611", "FM611"]
    assert yaml.safe_load((tmp_path / "no_shard.yaml").read_text())["fsdp"] == "no_shard auto_wrap"


SMOOTHED = {
    "run.sh": ("FM615", 'torchrun train.py --fsdp "full_shard auto_wrap" --label_smoothing_factor={}\n'),
    "exec.sh": ("FM615", "torchrun train.py --label_smoothing_factor {} --fsdp full_shard\n"),
    "Dockerfile": ("FM615", "CMD torchrun train.py --fsdp full_shard --label_smoothing_factor {}\n"),
    "run.py": ("FM619", "ARGS = ['x.py', '--fsdp', 'full_shard', '--label_smoothing_factor', '{}']\n"),
    "train.yaml": ("FM617", "do_train: true\nfsdp: full_shard\nlabel_smoothing_factor: {}\noutput_dir: o\n"),
    "train.json": (
        "FM617",
        '{{"do_train": true, "output_dir": "o", "fsdp": "full_shard", "label_smoothing_factor": {}}}\n',
    ),
}


@pytest.mark.parametrize("name", SMOOTHED)
def test_smoothed_labels_are_told_wherever_they_are_asked_for(tmp_path: Path, name: str) -> None:
    """Under FSDP2 `Trainer.compute_loss` does not know a causal model by its class's name."""
    code, text = SMOOTHED[name]
    (tmp_path / name).write_text(text.format("0.1"))
    result = rewritten(tmp_path)
    assert code in result.open_codes
    assert ["does not shift the labels" in line for line in result.lines].count(True) == 1
    (tmp_path / name).write_text(text.format("0.0"))
    assert rewritten(tmp_path).open_codes == []


@pytest.mark.parametrize("name", ["run.sh", "train.yaml"])
def test_a_config_file_that_a_script_or_a_file_names_is_known_by_that(tmp_path: Path, name: str) -> None:
    text = {
        "run.sh": 'torchrun train.py --fsdp "full_shard auto_wrap" --fsdp_config conf/f.json\n',
        "train.yaml": "do_train: true\noutput_dir: x\nfsdp: full_shard auto_wrap\nfsdp_config: conf/f.json\n",
    }[name]
    (tmp_path / name).write_text(text)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "f.json").write_text('{"activation_checkpointing": true}\n')
    (tmp_path / "conf" / "other.json").write_text('{"activation_checkpointing": true}\n')
    assert rewritten(tmp_path).open_codes == []
    named = (tmp_path / "conf" / "f.json").read_text()
    assert named == '{"activation_checkpointing": true, "version": 2}\n'
    assert (tmp_path / "conf" / "other.json").read_text() == '{"activation_checkpointing": true}\n'
    again = rewritten(tmp_path)
    assert again.open_codes == []
    assert (tmp_path / "conf" / "f.json").read_text() == named
