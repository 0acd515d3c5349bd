"""`--target-torch` below 2.6. Source: `torch/distributed/_composable/fsdp/__init__.py`, torch 2.4.1."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from codemods.rule import Finding, Project, finding, rule
from codemods.torch_names import PRIVATE_HOME, PUBLIC_FROM, is_fsdp1


@rule("target_torch", {"FM122": "FSDP2 is private in the torch that the result must run on"}, order=90)
def target_torch(project: Project) -> Iterator[Finding]:
    """With `--target-torch 2.4` or `2.5`, FSDP2's names come from `torch.distributed._composable.fsdp`.

    They are public, in `torch.distributed.fsdp`, from torch 2.6 on; newer releases still have the private
    path. FSDP2 of torch 2.4 and 2.5 runs on CUDA only, so the helper module asks `torch.cuda` where it would
    ask `torch.accelerator`, which is new in 2.6 as well. Not to be confused: the function
    `torch.distributed._composable.fully_shard` of these releases is an older one, on FSDP1's ground.
    """
    torch = project.options.target_torch
    if torch >= PUBLIC_FROM:
        return
    wraps = ((site.module, site.node) for site in project.wraps)
    names = (name for name in project.used_names() if is_fsdp1(name))
    others = ((use.module, use.node) for name in names for use in project.uses(name))
    found = next(itertools.chain(wraps, others), None)
    if found is not None:
        yield finding(
            *found,
            "FM122",
            f"in torch {torch[0]}.{torch[1]} FSDP2 is private: its names are imported from `{PRIVATE_HOME}`",
            remedy="move to torch 2.6 or later and rewrite with --target-torch 2.6",
            is_note=True,
        )
