import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of


def fsdp_wrapper(original_model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(original_model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(original_model, mesh=mesh)


class Trainer:
    def __init__(self, model, sharded_model):
        self.model = model
        self.sharded_model = sharded_model

    def step(self, optimizer, tokens):
        self.model.train()
        optimizer.zero_grad()
        loss = loss_of(self.sharded_model, tokens)
        loss.backward()
        optimizer.step()
        return loss.item()


def main(out):
    torch.manual_seed(3)
    model = Model()
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    fsdp_model = fsdp_wrapper(model)
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = Trainer(model, fsdp_model)
    losses = [trainer.step(optimizer, batch(step)) for step in range(3)]
    model.eval()
    return {
        "model": fsdp_model,
        "losses": losses,
        "counts": [trainable, frozen],
        "trains": model.blocks[0].training,
    }
