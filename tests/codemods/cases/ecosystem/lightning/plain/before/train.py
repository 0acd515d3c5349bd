import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp import MixedPrecision

from model import Block

strategy = FSDPStrategy(
    auto_wrap_policy={Block},
    sharding_strategy="SHARD_GRAD_OP",
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
    state_dict_type="sharded",
)
trainer = Trainer(strategy=strategy)
other = Trainer(strategy="fsdp")
