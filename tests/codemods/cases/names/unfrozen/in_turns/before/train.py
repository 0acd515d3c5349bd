import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision

BF16 = MixedPrecision(param_dtype=torch.bfloat16)


def train(generator, critic, batches):
    generator, critic = FSDP(generator, mixed_precision=BF16), FSDP(critic, mixed_precision=BF16)
    for batch in batches:
        for p in critic.parameters():
            p.requires_grad = False
        critic(generator(batch)).mean().backward()
        for p in critic.parameters():
            p.requires_grad = True
        critic(generator(batch).detach()).mean().backward()
