import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def shard(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def save(model, optimizer, path):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=True, offload_to_cpu=True),
        FullOptimStateDictConfig(rank0_only=False, offload_to_cpu=False),
    ):

        def save_model():
            state = {name: value.half() for name, value in model.state_dict().items()}
            if dist.get_rank() == 0:
                torch.save(state, path / "model.pt")

        save_model()

        def save_optimizer():
            state = FSDP.optim_state_dict(model, optimizer)
            if dist.get_rank() == 0:
                torch.save(state, path / "optimizer.pt")

        save_optimizer()


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    save(model, optimizer, out)
    return {"losses": losses}
