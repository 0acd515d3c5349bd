from accelerate import Accelerator
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def step(accelerator: Accelerator, net, optimizer):
    accelerator.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.clip_grad_norm_(1.0)
