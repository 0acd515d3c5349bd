import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def wrap_policy(model, blocks):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layer_classes = tuple(set(blocks))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, layer_classes):
            fully_shard(module, mesh=mesh, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh, reshard_after_forward=False)


def wrap_reference(model, strategy):
    from fsdp2_sharding import ShardingStrategy, shard_model

    return shard_model(
        model,
        device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy[strategy],
    )


def wrap_value(model):
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def clip(model, max_norm):
    from torch.distributed.fsdp import FSDPModule

    if isinstance(model, FSDPModule):
        return torch.nn.utils.clip_grad_norm_(
            model.parameters(), max_norm
        ).full_tensor()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
