import contextlib

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(model, batch, sharded):
    model = FSDP(model, use_orig_params=True)
    ctx = lambda: (FSDP.summon_full_params(model, writeback=False, recurse=False) if sharded else contextlib.nullcontext())
    with ctx():
        return model.generate(batch)
