"""What Accelerate and Transformers make of a configuration: the real launcher, its environment, the real
plugin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.fsdp import CPUOffloadPolicy, ShardingStrategy


@dataclass(frozen=True)
class Meaning:
    """What a job launched with a configuration does with its model, in terms that FSDP1 and FSDP2 share.

    Attributes:
        replicas: (replicas, shards) of the mesh, None where the layout is one flat group.
        broadcasts: whether rank 0's weights reach all ranks.
    """

    version: int
    reshards: bool
    replicas: tuple[int, int] | None
    state_dict: str
    policy: str
    layers: tuple[str, ...]
    smallest: int | None
    offloads: bool
    checkpoints: bool
    broadcasts: bool
    ignored: str | None


@contextmanager
def environment(new: dict[str, str]) -> Iterator[None]:
    """The process environment with more in it, put back at the end."""
    before = dict(os.environ)
    os.environ.update(new)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def environment_of(arguments: list[str]) -> dict[str, str]:
    """The environment `accelerate launch <arguments>` gives its processes."""
    with environment({}):
        parsed = launch_command_parser().parse_args([*arguments, "train.py"])
        parsed, _, _ = _validate_launch_command(parsed)
        return prepare_multi_gpu_env(parsed)


def meaning_of_file(path: Path) -> Meaning:
    return meaning(environment_of(["--config_file", str(path)]))


def meaning(env: dict[str, str]) -> Meaning:
    """What the plugin makes of an environment.

    FSDP1's `sync_module_states` wants an accelerator when the plugin is built, so it is read from the
    environment here.
    """
    version = int(env["FSDP_VERSION"])
    ram = env["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"
    sync = env["FSDP_SYNC_MODULE_STATES"] == "true"
    quiet = (
        {"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
        if version == 1
        else {}
    )
    with environment({**env, **quiet}):
        plugin = FullyShardedDataParallelPlugin()
        mesh = None
        if env.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
            config = ParallelismConfig()
            mesh = (config.dp_replicate_size, config.dp_shard_size)
    return Meaning(
        version=version,
        replicas=mesh,
        broadcasts=ram or (sync and version == 1),
        ignored=plugin.ignored_modules,
        **of_plugin(plugin),
    )


def of_plugin(plugin: FullyShardedDataParallelPlugin) -> dict[str, Any]:
    """The part of the meaning that the plugin alone says."""
    policy = plugin.auto_wrap_policy
    strategy = plugin.sharding_strategy
    return {
        "reshards": plugin.reshard_after_forward
        if plugin.fsdp_version == 2
        else strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD),
        "state_dict": plugin.state_dict_type.name,
        "policy": getattr(policy, "__name__", str(policy)),
        "layers": tuple(plugin.transformer_cls_names_to_wrap or ()),
        "smallest": plugin.min_num_params,
        "offloads": isinstance(plugin.cpu_offload, CPUOffloadPolicy)
        if plugin.fsdp_version == 2
        else plugin.cpu_offload.offload_params,
        "checkpoints": plugin.activation_checkpointing,
    }
