import functools

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import build_model

OTHERS = ("Embedding", "RMSNorm")


def class_of(module, name):
    """The class of that name of a model's modules."""
    if module.__class__.__name__ == name:
        return module.__class__
    for child in module.children():
        found = class_of(child, name)
        if found is not None:
            return found


def prepare(args):
    model = build_model()
    policy = functools.partial(
        transformer_auto_wrap_policy,
        transformer_layer_cls={class_of(model, args.block)},
    )
    model = FSDP(model, auto_wrap_policy=policy, use_orig_params=True)
    apply_activation_checkpointing(
        model, check_fn=lambda part: isinstance(part, class_of(model, args.block))
    )
    small = [m for m in model.modules() if type(m).__name__ in OTHERS]
    units = [m for m in model.modules() if type(m).__name__ == "FSDPBlock"]
    return model, small, units
