import torch

from fsdp2_sharding import MixedPrecision, shard_model

BF16 = MixedPrecision(param_dtype=torch.bfloat16)


def train(generator, critic, batches):
    generator, critic = shard_model(generator, mixed_precision=BF16), shard_model(
        critic, mixed_precision=BF16
    )
    for batch in batches:
        for p in critic.parameters():
            p.requires_grad = False
        critic(generator(batch)).mean().backward()
        for p in critic.parameters():
            p.requires_grad = True
        critic(generator(batch).detach()).mean().backward()
