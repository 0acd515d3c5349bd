from contextlib import ExitStack

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap


class Strategy:
    def __init__(self, dtype, sharding, **settings):
        self.precision = MixedPrecision(param_dtype=getattr(torch, dtype)) if dtype else None
        self.sharding = ShardingStrategy[sharding]
        self.settings = {"use_orig_params": True, **settings}

    def sharded_context(self):
        return enable_wrap(
            wrapper_cls=FSDP,
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
        if any(isinstance(module, FSDP) for module in model.modules()):
            return model
        return self.whole(model)

    def whole(self, model):
        return FSDP(
            model,
            mixed_precision=self.precision,
            sharding_strategy=self.sharding,
            device_id=torch.device("cpu"),
            **self.settings,
        )
