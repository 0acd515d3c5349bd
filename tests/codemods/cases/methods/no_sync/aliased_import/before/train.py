from contextlib import nullcontext as nothing

from torch.distributed.fsdp.fully_sharded_data_parallel import (
    FullyShardedDataParallel as Sharded,
)


class Trainer:
    def __init__(self, model, accumulate):
        self.model = Sharded(model)
        self.accumulate = accumulate

    def run(self, batches):
        for number, batch in enumerate(batches, start=1):
            is_last = number % self.accumulate == 0
            with self.model.no_sync() if not is_last else nothing():
                # forward and backward together
                loss = self.model(batch).mean()
                loss.backward()
