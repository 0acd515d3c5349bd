import functools

import torch

import fsdp2_sharding


def wrapped(model, layers, xla):
    if not xla:
        from torch.distributed.fsdp import FSDPModule

        from fsdp2_sharding import shard_model

        policy = functools.partial(
            fsdp2_sharding.transformer_auto_wrap_policy, transformer_layer_cls=layers
        )
        if not isinstance(model, FSDPModule):
            model = shard_model(
                model, auto_wrap_policy=policy, device_id=torch.cuda.current_device()
            )
    else:
        from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
        from torch_xla.distributed.fsdp import checkpoint_module
        from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers)

        def wrapper(part, *args, **kwargs):
            return FSDP(checkpoint_module(part), *args, **kwargs)

        model = FSDP(model, auto_wrap_policy=policy, auto_wrapper_callable=wrapper)
    return model


def main(model, layers, xla):
    model = wrapped(model, layers, xla)
    model(torch.ones(2)).sum().backward()
