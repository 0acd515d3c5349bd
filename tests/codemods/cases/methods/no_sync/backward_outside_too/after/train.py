from contextlib import nullcontext

from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import no_sync


def run(model, batches, accumulate):
    fully_shard(model)
    for i, batch in enumerate(batches):
        with no_sync(model) if i % accumulate != 0 else nullcontext():
            model(batch).mean().backward()
        penalty = model(batch).square().mean()
        penalty.backward()
