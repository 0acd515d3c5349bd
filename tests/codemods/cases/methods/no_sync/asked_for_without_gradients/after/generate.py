from contextlib import contextmanager, nullcontext

import torch
from torch.distributed.fsdp import fully_shard


class Generator:
    def __init__(self, model):
        self.model = fully_shard(model)

    def generate(self, steps):
        @contextmanager
        def nothing():
            yield

        no_sync = getattr(self.model, "no_sync", nothing)
        with torch.no_grad(), no_sync():
            return [self.model(step) for step in range(steps)]

    def train(self, batches):
        # TODO(fsdp-migrate FM531): call `model.set_requires_gradient_sync(is_last)`
        #   before each micro-batch instead
        no_sync = getattr(self.model, "no_sync", nullcontext)
        for batch in batches:
            with no_sync():
                self.model(batch).backward()
