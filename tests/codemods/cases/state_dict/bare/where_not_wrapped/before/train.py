import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model, batch, loss_of


class Trainer:
    """A file of DistributedDataParallel has other keys."""

    def __init__(self, model, cfg):
        self.cfg = cfg
        if cfg["fsdp"]:
            self.model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
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
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
            return self.model.state_dict()

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
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(torch.load(path))


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
