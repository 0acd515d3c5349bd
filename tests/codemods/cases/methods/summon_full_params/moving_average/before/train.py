import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from ema import EMA_FSDP
from model import Block, Model, batch, loss_of


class Generator:
    def __init__(self, out):
        self.model = FSDP(
            Model(),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
        self.ema = EMA_FSDP(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.out = out

    def step(self, tokens):
        self.optimizer.zero_grad()
        loss = loss_of(self.model, tokens)
        loss.backward()
        self.optimizer.step()
        self.ema.update(self.model)
        return loss.item()

    def scale_on_rank0(self):
        module = self.model
        with module.summon_full_params(module, writeback=True):
            with torch.no_grad():
                module.head.weight.mul_(0.5)


def main(out):
    torch.manual_seed(3)
    generator = Generator(out)
    losses = [generator.step(batch(step)) for step in range(2)]
    generator.scale_on_rank0()
    losses.append(generator.step(batch(2)))
    if dist.get_rank() == 0:
        names = {n.replace("_fsdp_wrapped_module.", "") for n in generator.ema.shadow}
        torch.save(sorted(names), out / "names.pt")
    generator.ema.copy_to(generator.model)
    return {"model": generator.model, "losses": losses}
