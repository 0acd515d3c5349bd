class Strategy:
    # TODO(fsdp-migrate FM516): shard with `fully_shard` in place; a sharded module is
    #   an `FSDPModule`
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    def wrap(self, model):
        return self.FSDP(model)
