from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


class Strategy:
    """Models come from a registry, by name."""

    def no_sync(self, model):
        return model.no_sync() if hasattr(model, "no_sync") else nullcontext()

    def clip(self, model, limit):
        if hasattr(model, "clip_grad_norm_"):
            return model.clip_grad_norm_(limit)
        return limit

    def accumulate(self, model, batch):
        with getattr(model, "no_sync", nullcontext)():
            model(batch).sum().backward()


def by_a_library(accelerator, net):
    return accelerator.no_sync(net) if hasattr(accelerator, "no_sync") else nullcontext()
