import functools

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

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
    model = FSDP(
        Model(),
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
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
    with FSDP.state_dict_type(model, state_type, model_config, optim_config):
        state = {
            "model": model.state_dict(),
            "optim": FSDP.optim_state_dict(model, optimizer),
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
    with model.state_dict_type(
        model,
        state_dict_type=StateDictType[state_type.name],
        state_dict_config=model_config,
        optim_state_dict_config=optim_config,
    ):
        if state_type == StateDictType.SHARDED_STATE_DICT:
            state = {
                "model": model.state_dict(),
                "optim": FSDP.optim_state_dict(model, optimizer),
            }
            dcp.load(state, checkpoint_id=path)
        else:
            state = torch.load(path, weights_only=False)
        keys = model.load_state_dict(state["model"], strict=True)
        loadable = FSDP.optim_state_dict_to_load(
            optim_state_dict=state["optim"], model=model, optim=optimizer
        )
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
