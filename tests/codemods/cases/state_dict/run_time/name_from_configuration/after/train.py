import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
    load_model_state_dict,
    model_state_dict,
    optim_state_dict,
    optim_state_dict_to_load,
    state_dict_type,
)
from model import Block, Model, batch, loss_of

CONFIGS = {
    "full": (
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=True),
    ),
    "every_rank": (
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(),
        FullOptimStateDictConfig(offload_to_cpu=False),
    ),
    "sharded": (
        StateDictType.SHARDED_STATE_DICT,
        ShardedStateDictConfig(),
        ShardedOptimStateDictConfig(offload_to_cpu=False),
    ),
}


def build():
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(model, optimizer, kind, path):
    # Which files are written is a setting.
    state_type, model_config, optim_config = CONFIGS[kind]
    with state_dict_type(model, state_type, model_config, optim_config):
        state = {
            "model": model_state_dict(model),
            "optim": optim_state_dict(model, optimizer),
        }
    if state_type == StateDictType.SHARDED_STATE_DICT:
        dcp.save(state, checkpoint_id=path)
    elif dist.get_rank() == 0:
        torch.save(state, path)
    dist.barrier()
    return sorted(state["model"])


def load(model, optimizer, kind, path):
    state_type, model_config, optim_config = CONFIGS[kind]
    # Called on the instance, as a method.
    with state_dict_type(
        model,
        state_dict_type=StateDictType[state_type.name],
        state_dict_config=model_config,
        optim_state_dict_config=optim_config,
    ):
        if state_type == StateDictType.SHARDED_STATE_DICT:
            state = {
                "model": model_state_dict(model),
                "optim": optim_state_dict(model, optimizer),
            }
            dcp.load(state, checkpoint_id=path)
        else:
            state = torch.load(path, weights_only=False)
        keys = load_model_state_dict(model, state["model"], strict=True)
        loadable = optim_state_dict_to_load(model, optimizer, state["optim"])
        optimizer.load_state_dict(loadable)
    return list(keys.missing_keys)


def main(out, kind, loaded_as):
    path = out / ("shards" if kind == "sharded" else "checkpoint.pt")
    model, optimizer = build()
    losses = train(model, optimizer, 0, 3)
    names = save(model, optimizer, kind, path)
    again, again_optimizer = build()
    train(again, again_optimizer, 5, 6)
    missing = load(again, again_optimizer, loaded_as, path)
    losses += train(again, again_optimizer, 3, 5)
    return {"losses": losses, "model": again, "names": names, "missing": missing}
