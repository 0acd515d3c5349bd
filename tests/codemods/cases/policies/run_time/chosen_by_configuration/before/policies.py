import functools

from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

from model import Block


def get_policy(name, min_num_params=600):
    if name == "size":
        return functools.partial(
            size_based_auto_wrap_policy, min_num_params=min_num_params
        )
    if name == "lambda":
        return functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block)
        )
    if name == "class":
        return ModuleWrapPolicy({Block})
    if name == "layers":
        return functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        )
    return None
