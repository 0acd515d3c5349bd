import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model, batch, loss_of


class Trainer:
    """A file of DistributedDataParallel has other keys."""

    def __init__(self, model, cfg):
        self.cfg = cfg
        if cfg["fsdp"]:
            self.model = fully_shard(
                model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))
            )
        else:
            self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, tokens):
        self.model.train()
        self.optimizer.zero_grad()
        loss = loss_of(self.model, tokens)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, tokens):
        self.model.eval()
        return loss_of(self.model, tokens).item()

    def weights(self):
        if not self.cfg["fsdp"]:
            return self.model.state_dict()
        return get_model_state_dict(
            self.model, options=StateDictOptions(full_state_dict=True)
        )

    def load(self, path):
        if not self.cfg["fsdp"]:
            self.model.load_state_dict(torch.load(path))
        else:
            load_sharded(self.model, path)

    def load_or_return(self, path):
        if self.cfg["fsdp"]:
            return load_sharded(self.model, path)
        return self.model.load_state_dict(torch.load(path))


def load_sharded(model, path):
    # After a forward pass the root shows temporary parameters.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    set_model_state_dict(
        model, torch.load(path), options=StateDictOptions(full_state_dict=True)
    )


def main(out, fsdp, method):
    trainer = Trainer(Model(), {"fsdp": fsdp})
    first = {name: tensor.clone() for name, tensor in trainer.weights().items()}
    if dist.get_rank() == 0:
        torch.save(first, out / "first.pt")
    dist.barrier()
    losses = [trainer.step(batch(step)) for step in range(2)]
    losses.append(trainer.evaluate(batch(2)))
    getattr(trainer, method)(out / "first.pt")
    losses += [trainer.step(batch(step)) for step in range(2)]
    return {"losses": losses}
