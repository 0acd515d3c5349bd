class Strategy:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    def wrap(self, model):
        return self.FSDP(model)
