"""Training configuration: a dataclass, an optional JSON file, and one command-line flag per field."""

import argparse
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass
class TrainConfig:
    # data
    data_path: str = "data/harbour.txt"
    block_size: int = 64
    global_batch_size: int = 24  # sequences per optimizer step, over all ranks and micro-batches
    accumulation_steps: int = 2

    # model
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 96
    dropout: float = 0.0
    bias: bool = False

    # optimization
    steps: int = 20
    learning_rate: float = 1e-3
    min_learning_rate: float = 1e-4
    warmup_steps: int = 5
    decay_steps: int = 100
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    grad_clip: float = 2.0
    seed: int = 1337

    # sharding
    sharding_strategy: str = "FULL_SHARD"  # a member of torch's ShardingStrategy
    wrap_policy: str = "block"  # "block" or "size"
    min_unit_params: int = 50_000  # for wrap_policy "size"
    precision: str = "fp32"  # a key of policies.PRECISIONS
    use_orig_params: bool = True

    # evaluation, logging, checkpoints
    out_dir: str = "out"
    eval_interval: int = 10
    eval_batches: int = 2
    save_interval: int = 10
    save_formats: str = "full"  # comma-separated: "full", "sharded", "local"
    resume: str = ""  # a full checkpoint (file), or a sharded or local one (directory)


def load_config(argv: list[str] | None = None) -> TrainConfig:
    """Defaults, overridden by `--config FILE.json`, overridden by the other flags."""
    parser = argparse.ArgumentParser(description="Train a small character-level GPT.")
    parser.add_argument("--config", type=Path, help="JSON file with any of the fields below")
    for field in dataclasses.fields(TrainConfig):
        flag = "--" + field.name.replace("_", "-")
        if field.type is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
        else:
            parser.add_argument(flag, type=field.type, default=None)
    given = vars(parser.parse_args(argv))
    path = given.pop("config")
    values = json.loads(path.read_text()) if path else {}
    values.update({name: value for name, value in given.items() if value is not None})
    return TrainConfig(**values)
