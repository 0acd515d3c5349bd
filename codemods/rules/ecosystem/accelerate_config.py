"""Accelerate's configuration files (`accelerate config`, `accelerate launch --config_file`)."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.configuration.accelerate import (
    ONLY_FSDP1,
    is_accelerate,
    is_fsdp2,
    to_fsdp2,
)
from codemods.configuration.accelerate_layout import Launch
from codemods.configuration.blocks import block_findings
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.settings import bare, number
from codemods.configuration.tree import ConfigFile, Entry, Mapping
from codemods.model import Edit, Finding, Span

CODES = {
    "FM601": "a block of Accelerate settings becomes FSDP2's",
    "FM602": "a sharding strategy that Accelerate's FSDP2 does not have",
    "FM603": "hybrid sharding: the mesh",
    "FM604": "flat shards as state dict",
    "FM605": "rank 0's weights are no longer sent to all ranks",
    "FM606": "units chosen by size",
    "FM607": "a setting whose effect ends or begins",
    "FM608": "activation checkpointing and the random state",
    "FM609": "a setting without effect, or not known",
}


@config_rule("fsdp_config", CODES)
def accelerate_config(file: ConfigFile, around: Surroundings) -> Iterator[Finding]:
    """The `fsdp_config` of an Accelerate file becomes that of `fsdp_version: 2`, with the same layout and the
    same checkpoints.

    - `fsdp_sharding_strategy` FULL_SHARD and SHARD_GRAD_OP (names or numbers) become
      `fsdp_reshard_after_forward: true` and `false`. HYBRID_SHARD and HYBRID_SHARD_ZERO2 need a mesh besides:
      `parallelism_config` is written from `num_processes` and `num_machines`, and where those do not say it,
      nothing is changed. NO_SHARD has no FSDP2 form in Accelerate and is left, with the way to DDP.
    - Under `fsdp_version: 1` the key `fsdp_reshard_after_forward` was written by `accelerate config` and
      never read: the launcher's FULL_SHARD was in force. The rewrite keeps what was in force and says so.
    - `fsdp_state_dict_type` is written out where it is missing, because its default changes from full to
      sharded.
    - `fsdp_sync_module_states` goes where `fsdp_cpu_ram_efficient_loading` sends rank 0's weights; where that
      is off, the ranks would start from their own weights, which is left to you (`--unsafe-fixes` turns it
      on).
    - `fsdp_backward_prefetch`, `fsdp_forward_prefetch`, `fsdp_use_orig_params` go: FSDP2 has no such choice.
    - Units: TRANSFORMER_BASED_WRAP and NO_WRAP are the same (Accelerate's FSDP2 also makes units of the
      embedding and of the head, which changes no value); SIZE_BASED_WRAP counts differently.
    - Everything else stays as it is, comments and order included.

    A JSON file in which something needs a person stays as it is: no comment in it could say so later.

    The file is then for accelerate 1.6 or later (`parallelism_config`: 1.10 or later).
    """
    for root in file.roots:
        if isinstance(root, Mapping) and is_accelerate(root.value):
            entry = root.get("fsdp_config")
            if entry is not None and isinstance(entry.node, Mapping) and entry.node.entries:
                yield from _block(file, root, entry, entry.node)


def _block(file: ConfigFile, root: Mapping, entry: Entry, block: Mapping) -> Iterator[Finding]:
    settings = {bare(key): value for key, value in block.value.items()}
    if is_fsdp2(settings):
        for setting in block.entries:
            if bare(setting.key) in ONLY_FSDP1:
                yield found_at(
                    file,
                    setting.span,
                    "FM609",
                    f"`{setting.key}` has no effect with `fsdp_version: 2`",
                    is_note=True,
                )
        return
    mesh = root.get("parallelism_config")
    launch = Launch(
        num_processes=number(root.value.get("num_processes")),
        num_machines=number(root.value.get("num_machines")),
        mixed_precision=str(root.value.get("mixed_precision", "")).lower(),
        has_mesh=mesh is not None and bool(mesh.value),
        prefix="fsdp_",
    )
    done = to_fsdp2(block.value, launch)
    extra = [_mesh(file, entry, mesh, done.mesh)] if done.mesh and not done.blocked else []
    yield from block_findings(file, entry, block, done, "FM601", extra)


def _mesh(file: ConfigFile, entry: Entry, mesh: Entry | None, sizes: tuple[int, int]) -> Edit:
    """The `parallelism_config` of a mesh, after `fsdp_config`; an empty one (`{}`) is filled."""
    names = ("parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size")
    values = list(zip(names, sizes, strict=True))
    lead = " " * (entry.key_span.start - file.line_start(entry.key_span.start))
    if file.kind == "json":
        body = "{" + ", ".join(f'"{name}": {size}' for name, size in values) + "}"
        text = f',\n{lead}"parallelism_config": {body}'
    else:
        body = "".join(f"\n{lead}  {name}: {size}" for name, size in values)
        text = f"\n{lead}parallelism_config:{body}"
    if mesh is not None:
        start = mesh.node.span.start if file.kind == "json" else mesh.key_span.end + 1
        return Edit(file.path, Span(start, max(start, mesh.node.span.end)), (body,))
    end = entry.span.end
    if file.kind == "json":
        return Edit(file.path, Span(end, end), (text,))
    line_end = file.line_end(end)
    ended = file.text[:line_end].endswith("\n")
    return Edit(file.path, Span(line_end, line_end), (text.removeprefix("\n") + "\n" if ended else text,))
