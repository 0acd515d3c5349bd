from torch.distributed.algorithms._comm_hooks import default_hooks

from fsdp2_sharding import shard_model


def build(first, second, own_hook):
    first, second = shard_model(first), shard_model(second)
    # TODO(fsdp-migrate FM309): delete the call and give `MixedPrecisionPolicy`
    #   `reduce_dtype=torch.bfloat16`
    first.register_comm_hook(None, default_hooks.bf16_compress_hook)
    # TODO(fsdp-migrate FM309): an own sum without division is
    #   `set_gradient_divide_factor(1.0)` on every FSDPModule
    #   (`set_reduce_scatter_divide_factor` before torch 2.8); anything else needs
    #   `set_custom_reduce_scatter` or `set_all_reduce_hook`
    second.register_comm_hook(state=None, hook=own_hook)
    return first, second
