from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, accumulate):
        self.model = fully_shard(model)
        self.accumulate = accumulate

    def run(self, batches):
        for number, batch in enumerate(batches, start=1):
            is_last = number % self.accumulate == 0
            self.model.set_requires_gradient_sync(is_last)
            # forward and backward together
            loss = self.model(batch).mean()
            loss.backward()
