import torch
import torch.distributed as dist


def shard(model, strategy, dtype):
    import functools

    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from torch.nn import Module

    from model import Block

    assert isinstance(model, Module)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    return FSDP(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy[strategy],
        mixed_precision=MixedPrecision(param_dtype=getattr(torch, dtype)),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def is_sharded(model):
    """Whether a model is sharded."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    assert ShardingStrategy.FULL_SHARD.name == "FULL_SHARD"
    return isinstance(model, FullyShardedDataParallel)


def weights(model, version):
    if version == 2:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=options)
    elif version == 1:
        from torch.distributed.fsdp import FullStateDictConfig, StateDictType
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            return model.state_dict()
    return model.state_dict()


def options_of(whole):
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(full_state_dict=whole)


def main(out, strategy, dtype):
    from model import Model, batch, loss_of

    model = shard(Model(), strategy, dtype)
    assert is_sharded(model) and options_of(True).full_state_dict
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    saved = weights(model, 1)
    if dist.get_rank() == 0:
        torch.save(saved, out / "weights.pt")
    return {"model": model, "losses": losses}
