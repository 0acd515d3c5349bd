from contextlib import contextmanager, nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Generator:
    def __init__(self, model):
        self.model = FSDP(model, use_orig_params=True)

    def generate(self, steps):
        @contextmanager
        def nothing():
            yield

        no_sync = getattr(self.model, "no_sync", nothing)
        with torch.no_grad(), no_sync():
            return [self.model(step) for step in range(steps)]

    def train(self, batches):
        no_sync = getattr(self.model, "no_sync", nullcontext)
        for batch in batches:
            with no_sync():
                self.model(batch).backward()
