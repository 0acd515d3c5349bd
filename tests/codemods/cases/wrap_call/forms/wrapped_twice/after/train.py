import torch

from fsdp2_sharding import shard_model
from model import Block, batch, loss_of


class Mixed(torch.nn.Module):
    """What is not wrapped stays whole on every rank."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(32, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(2))
        self.head = torch.nn.Linear(width, 32)

    def wrap(self, settings):
        self.embed = shard_model(self.embed, **settings)
        self.blocks = torch.nn.ModuleList(
            (shard_model(b, **settings) for b in self.blocks)
        )
        for parameter in self.head.parameters():
            parameter.requires_grad_(False)

        def clip_grad_norm_(max_norm):
            torch.nn.utils.clip_grad_norm_(self.embed.parameters(), max_norm)

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
