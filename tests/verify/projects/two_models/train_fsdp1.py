from job import Block, options, train
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model):
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)


train(shard, lambda model, limit: model.clip_grad_norm_(limit), options())
