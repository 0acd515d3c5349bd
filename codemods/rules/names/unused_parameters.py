"""Parameters that take no part in a step.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py`,
`FSDPModule.set_reduce_scatter_unused_params` (torch 2.13)."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.rule import Finding, Project, finding, rule


@rule("unused parameters", {"FM512": "what happens to parameters that a step does not use"})
def unused_parameters(project: Project) -> Iterator[Finding]:
    """Said once per run: a trainable parameter that a step does not use has no gradient under FSDP2.

    FSDP1 gave such parameters a gradient of zeros, so that weight decay and momentum went on; FSDP2 leaves
    `None`, and the optimizer passes them over. Where different ranks use different parameters FSDP2 stops
    or hangs. On torch 2.13 and later `model.set_reduce_scatter_unused_params(True)` brings FSDP1's
    behaviour back."""
    for site in project.wraps[:1]:
        yield finding(
            site.module,
            site.node,
            "FM512",
            "if a step leaves trainable parameters unused, they get no gradient (FSDP1: zeros); torch "
            "2.13 and later: "
            "`model.set_reduce_scatter_unused_params(True)`",
            is_note=True,
        )
