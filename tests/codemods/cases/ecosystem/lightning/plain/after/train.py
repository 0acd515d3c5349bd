import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp import MixedPrecision

from model import Block

# TODO(fsdp-migrate FM630): use `ModelParallelStrategy(data_parallel_size=world_size,
#   tensor_parallel_size=1, save_distributed_checkpoint=True)`, and in
#   `configure_model`, once, call `fully_shard(module,
#   mesh=self.device_mesh["data_parallel"], reshard_after_forward=False,
#   mp_policy=MixedPrecisionPolicy(<the dtypes of mixed_precision>))` on every module of
#   {Block}, and on the model last
strategy = FSDPStrategy(
    auto_wrap_policy={Block},
    sharding_strategy="SHARD_GRAD_OP",
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
    state_dict_type="sharded",
)
trainer = Trainer(strategy=strategy)
# TODO(fsdp-migrate FM631): use `ModelParallelStrategy(data_parallel_size=world_size,
#   tensor_parallel_size=1, save_distributed_checkpoint=False)`, and in
#   `configure_model`, once, call `fully_shard(module,
#   mesh=self.device_mesh["data_parallel"])` on each layer, and on the model last
other = Trainer(strategy="fsdp")
