import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from checkpoints import Checkpointer
from model import Block, Model, batch, loss_of


def keys(model):
    """Nothing here looks like FSDP."""
    return sorted(model.state_dict())


def on_cpu(model):
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return state


def taken(model):
    save = model.state_dict
    return save


def main(out):
    sharded = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=0.01)
    checkpointer = Checkpointer(sharded, out)
    loss_of(sharded, batch(0)).backward()
    optimizer.step()
    checkpointer.save()
    dist.barrier()
    names, state = keys(sharded), on_cpu(sharded)
    assert callable(taken(sharded))
    loss_of(sharded, batch(1)).backward()
    optimizer.step()
    checkpointer.load()
    return {"model": sharded, "names": names, "state": state}
