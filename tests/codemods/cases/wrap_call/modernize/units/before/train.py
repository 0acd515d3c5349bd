from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from policies import fine_tuning_policy, only_trained


def sharded(model, adapter, layer):
    model = FSDP(model, auto_wrap_policy=fine_tuning_policy(layer))
    adapter = FSDP(adapter, auto_wrap_policy=only_trained())
    return model, adapter
