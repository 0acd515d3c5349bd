import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from fsdp2_sharding import shard_model


def resume(model, make_optimizer, saved):
    group = dist.new_group([0, 1])
    model = shard_model(model, process_group=group)
    optimizer = make_optimizer(model)
    # TODO(fsdp-migrate FM405): use `set_optimizer_state_dict(model, optimizer, state,
    #   options=...)` from `torch.distributed.checkpoint.state_dict`; it loads by
    #   itself, so the following `optimizer.load_state_dict` goes
    state = FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer, group=group)
    optimizer.load_state_dict(state)
