import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap

from model import Block, batch, loss_of


class Mixed(torch.nn.Module):
    """What is not wrapped stays whole on every rank."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(32, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(2))
        self.head = torch.nn.Linear(width, 32)

    def wrap(self, settings):
        with enable_wrap(wrapper_cls=FSDP, **settings):
            self.embed = wrap(wrap(self.embed))
            self.blocks = torch.nn.ModuleList(wrap(wrap(b)) for b in self.blocks)
        for parameter in self.head.parameters():
            parameter.requires_grad_(False)

        def clip_grad_norm_(max_norm):
            self.embed.clip_grad_norm_(max_norm)

        self.clip_grad_norm_ = clip_grad_norm_

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main(out):
    model = Mixed()
    model.wrap({"device_id": torch.device("cpu"), "use_orig_params": True})
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}
