from dataclasses import dataclass

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@dataclass
class Settings:
    ignored_modules: list[nn.Module] | None = None
    forward_prefetch: bool = False


def shard(model, settings):
    return FSDP(model, **settings.__dict__)


def step(model, optimizer, loss, settings):
    model = shard(model, settings)
    loss.backward()
    norm = model.clip_grad_norm_(1.0)
    optimizer.step()
    return norm.item()
