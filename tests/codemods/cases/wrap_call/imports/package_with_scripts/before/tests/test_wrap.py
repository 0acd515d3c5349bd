from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from trainer.parts.wrap import policy


def check(model, cfg):
    model = FSDP(model, auto_wrap_policy=policy(cfg), use_orig_params=True)
    assert model is not None
