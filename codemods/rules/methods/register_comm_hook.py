"""`model.register_comm_hook(state, hook)`.

Source: `FullyShardedDataParallel.register_comm_hook`,
`torch/distributed/algorithms/_comm_hooks/default_hooks.py`."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.rule import Finding, No, Project, argument, finding, rule

_REMEDIES = {
    "allreduce_hook": "delete the call: this is what FSDP2 does by itself",
    "reduce_scatter_hook": "delete the call: this is what FSDP2 does by itself",
    "bf16_compress_hook": "delete the call and give `MixedPrecisionPolicy` `reduce_dtype=torch.bfloat16`",
    "fp16_compress_hook": "delete the call and give `MixedPrecisionPolicy` `reduce_dtype=torch.float16`",
}
_OWN = (
    "an own sum without division is `set_gradient_divide_factor(1.0)` on every FSDPModule "
    "(`set_reduce_scatter_divide_factor` before torch 2.8); anything else needs "
    "`set_custom_reduce_scatter` or `set_all_reduce_hook`"
)


@rule("register_comm_hook", {"FM309": "a communication hook of FSDP1"})
def register_comm_hook(project: Project) -> Iterator[Finding]:
    """`register_comm_hook` has no counterpart of the same shape and is left to a person.

    The default hooks are what FSDP2 does anyway, the compressing ones are a `reduce_dtype`; the finding
    says which."""
    for call in project.method_calls("register_comm_hook"):
        if isinstance(project.sharded(call.module, call.receiver), No):
            continue
        hook = argument(call.node, 1, "hook")
        name = call.module.code(hook).rpartition(".")[2] if hook is not None else ""
        yield finding(
            call.module,
            call.node,
            "FM309",
            "an FSDP2 model has no `register_comm_hook`",
            remedy=_REMEDIES.get(name, _OWN),
        )
