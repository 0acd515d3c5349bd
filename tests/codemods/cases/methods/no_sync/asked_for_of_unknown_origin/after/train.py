from contextlib import nullcontext

from torch.distributed.fsdp import FSDPModule, fully_shard

from fsdp2_sharding import no_sync_of_either


def shard(model):
    return fully_shard(model)


class Strategy:
    """Models come from a registry, by name."""

    def no_sync(self, model):
        return (
            no_sync_of_either(model)
            if isinstance(model, FSDPModule) or hasattr(model, "no_sync")
            else nullcontext()
        )

    def clip(self, model, limit):
        if isinstance(model, FSDPModule) or hasattr(model, "clip_grad_norm_"):
            # TODO(fsdp-migrate FM301): if this is the sharded model:
            #   `torch.nn.utils.clip_grad_norm_(model.parameters(), c)`
            return model.clip_grad_norm_(limit)
        return limit

    def accumulate(self, model, batch):
        # TODO(fsdp-migrate FM531): call `model.set_requires_gradient_sync(is_last)`
        #   before each micro-batch instead
        with getattr(model, "no_sync", nullcontext)():
            model(batch).sum().backward()


def by_a_library(accelerator, net):
    return accelerator.no_sync(net) if hasattr(accelerator, "no_sync") else nullcontext()
