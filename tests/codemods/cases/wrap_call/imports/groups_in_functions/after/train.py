import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions as StateDictOptions_,
)
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict as get_model_state_dict_,
)


def shard(model, strategy, dtype):
    import functools

    from torch.nn import Module

    from fsdp2_sharding import (
        MixedPrecision,
        ShardingStrategy,
        shard_model,
        transformer_auto_wrap_policy,
    )
    from model import Block

    assert isinstance(model, Module)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    return shard_model(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy[strategy],
        mixed_precision=MixedPrecision(param_dtype=getattr(torch, dtype)),
        device_id=torch.device("cpu"),
    )


def is_sharded(model):
    """Whether a model is sharded."""
    from torch.distributed.fsdp import FSDPModule

    from fsdp2_sharding import ShardingStrategy

    assert ShardingStrategy.FULL_SHARD.name == "FULL_SHARD"
    return isinstance(model, FSDPModule)


def weights(model, version):
    if version == 2:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=options)
    elif version == 1:
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            get_model_state_dict,
        )

        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=config)
    return get_model_state_dict_(model, options=StateDictOptions_(full_state_dict=True))


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
