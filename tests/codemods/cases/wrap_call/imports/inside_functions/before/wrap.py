import torch


def wrap_policy(model, blocks):
    import functools

    import torch.distributed.fsdp as fsdp
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=set(blocks)
    )
    return fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
        sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP,
        use_orig_params=True,
    )


def wrap_reference(model, strategy):
    from torch.distributed import fsdp

    return fsdp.FullyShardedDataParallel(
        model,
        device_id=torch.device("cpu"),
        sharding_strategy=fsdp.ShardingStrategy[strategy],
    )


def wrap_value(model):
    import torch.distributed.fsdp

    return torch.distributed.fsdp.FullyShardedDataParallel(
        model, device_id=torch.device("cpu"), use_orig_params=True
    )


def clip(model, max_norm):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    if isinstance(model, FSDP):
        return model.clip_grad_norm_(max_norm)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
