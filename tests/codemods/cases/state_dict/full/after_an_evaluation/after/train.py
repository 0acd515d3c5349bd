import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model
from trainer import Trainer, resume


def main(out, use_orig_params):
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = Trainer(model, optimizer, out)
    losses = trainer.fit(3)
    losses.append(trainer.evaluate())
    trainer.load_optimizer()
    losses.append(trainer.evaluate())
    trainer.load_model()
    losses += trainer.fit(1)
    moments = resume(trainer, model)
    losses.append(trainer.evaluate())
    return {"model": model, "losses": losses, "moments": moments["state"]}
