from dataclasses import dataclass

from torch import nn

from fsdp2_sharding import clip_grad_norm_, shard_model


@dataclass
class Settings:
    ignored_modules: list[nn.Module] | None = None
    forward_prefetch: bool = False


def shard(model, settings):
    return shard_model(model, **settings.__dict__)


def step(model, optimizer, loss, settings):
    model = shard(model, settings)
    loss.backward()
    norm = clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return norm.item()
