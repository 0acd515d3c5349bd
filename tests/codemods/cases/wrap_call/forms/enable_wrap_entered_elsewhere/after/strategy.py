from contextlib import ExitStack

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp.wrap import enable_wrap

from fsdp2_sharding import MixedPrecision, ShardingStrategy, shard_model


class Strategy:
    def __init__(self, dtype, sharding, **settings):
        self.precision = MixedPrecision(param_dtype=getattr(torch, dtype)) if dtype else None
        self.sharding = ShardingStrategy[sharding]
        self.settings = {"use_orig_params": True, **settings}

    def sharded_context(self):
        return enable_wrap(
            wrapper_cls=shard_model,
            mixed_precision=self.precision,
            sharding_strategy=self.sharding,
            device_id=torch.device("cpu"),
            **self.settings,
        )

    def init_context(self):
        stack = ExitStack()
        stack.enter_context(torch.device("cpu"))
        stack.enter_context(self.sharded_context())
        return stack

    def setup(self, model):
        """What was wrapped by hand stays as it is, with nothing around it."""
        if any(isinstance(module, FSDPModule) for module in model.modules()):
            return model
        return self.whole(model)

    def whole(self, model):
        return shard_model(
            model,
            mixed_precision=self.precision,
            sharding_strategy=self.sharding,
            device_id=torch.device("cpu"),
            **self.settings,
        )
