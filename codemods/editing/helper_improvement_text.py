"""The text of the helper module's parts for `--modernize`: what FSDP2 can do beyond what FSDP1 did.

Each takes a model that is sharded already, or is not yet, so that it is the same around a loop that is
written out and around `shard_model`.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`set_modules_to_forward_prefetch`),
`torch/utils/checkpoint.py` (`checkpoint`, `create_selective_checkpoint_contexts`),
`torch/nn/modules/module.py` (`Module.compile`), torchao's `float8/float8_linear_utils.py` and
`float8/fsdp_utils.py`; the layers left out are those that torchtitan leaves out.
"""

from __future__ import annotations

_CHECKPOINT_UNITS = '''\
def checkpoint_units(model: nn.Module) -> None:
    """Units compute their activations again in the backward pass, to save memory.

    Those that hold no others, and only what they compute: FSDP gathers and casts around
    it, and parameters keep their names.
    """
    units = [m for m in model.modules() if isinstance(m, FSDPModule) and m is not model]
    for unit in units:
        if sum(isinstance(m, FSDPModule) for m in unit.modules()) == 1:
            unit.forward = functools.partial(
                checkpoint, unit.forward, use_reentrant=False
            )
'''

_CHECKPOINT_UNITS_SELECTIVELY = '''\
def checkpoint_units_selectively(model: nn.Module) -> None:
    """Units compute activations again in the backward pass, all but the dear ones.

    The results of matrix products and of attention are kept. Those units that hold no
    others, and only what they compute: FSDP gathers and casts around it, and parameters
    keep their names.
    """
    aten = torch.ops.aten
    kept = [
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
    ]
    contexts = functools.partial(create_selective_checkpoint_contexts, kept)
    units = [m for m in model.modules() if isinstance(m, FSDPModule) and m is not model]
    for unit in units:
        if sum(isinstance(m, FSDPModule) for m in unit.modules()) == 1:
            unit.forward = functools.partial(
                checkpoint, unit.forward, use_reentrant=False, context_fn=contexts
            )
'''

_COMPILE_UNITS = '''\
def compile_units(model: nn.Module) -> None:
    """Compile each unit by itself: alike units share one compilation.

    In place, so that parameters keep their names and the hooks of FSDP still run.
    """
    units: list[nn.Module] = [
        m for m in model.modules() if isinstance(m, FSDPModule) and m is not model
    ]
    for unit in units or [model]:
        unit.compile()
'''

_PREFETCH_UNITS = '''\
def prefetch_units(model: nn.Module, ahead: int) -> None:
    """While a unit computes, the parameters of the next `ahead` units are gathered.

    Units have to run in the order of the modules; each costs the memory of its
    parameters a little longer.
    """
    units: list[FSDPModule] = [
        m for m in model.modules() if isinstance(m, FSDPModule) and m is not model
    ]
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + ahead])
        unit.set_modules_to_backward_prefetch(units[max(i - ahead, 0) : i][::-1])
'''

_CONVERT_TO_FLOAT8 = '''\
def convert_to_float8(model: nn.Module) -> nn.Module:
    """Linear layers compute in float8, and FSDP gathers their weights in it.

    Before the model is sharded, and before its optimizer is built. Output layers keep
    their precision; so do layers of sizes that the hardware cannot take, subclasses of
    `nn.Linear`, whose callers may read the weight, and weights that are shared. After
    each step of an optimizer the scales of all weights are computed at once.
    """
    held = Counter(id(p) for m in model.modules() for p in m._parameters.values())

    def computes_in_float8(layer: nn.Module, name: str) -> bool:
        return (
            type(layer) is nn.Linear
            and held[id(layer.weight)] == 1
            and all(size % 16 == 0 for size in layer.weight.shape)
            and name.rpartition(".")[2] not in ("lm_head", "output", "head")
        )

    def compute_scales(*_: object) -> None:
        precompute_float8_dynamic_scale_for_fsdp(model)

    config = Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    convert_to_float8_training(
        model, module_filter_fn=computes_in_float8, config=config
    )
    register_optimizer_step_post_hook(compute_scales)
    return model
'''

IMPROVEMENT_HEADER = '''\
"""What sharded models get beyond what FSDP1 did for them.

Written by fsdp-migrate; plain PyTorch, yours to edit.
"""
'''

IMPROVEMENT_PARTS = {
    "checkpoint_units": _CHECKPOINT_UNITS,
    "checkpoint_units_selectively": _CHECKPOINT_UNITS_SELECTIVELY,
    "convert_to_float8": _CONVERT_TO_FLOAT8,
    "compile_units": _COMPILE_UNITS,
    "prefetch_units": _PREFETCH_UNITS,
}
