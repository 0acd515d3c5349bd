import contextlib

from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    ShardedStateDictConfig,
    StateDictType,
)


class Sharded(FullyShardedDataParallel):
    def __init__(self, model, kind: StateDictType):
        self.kind = kind
        super().__init__(model)

    @contextlib.contextmanager
    def chosen(self):
        config = ShardedStateDictConfig()
        if self.kind == StateDictType.FULL_STATE_DICT:
            config = FullStateDictConfig(offload_to_cpu=True)
        with FullyShardedDataParallel.state_dict_type(self, self.kind, config):
            yield

    def state_dict(self, *args, **kwargs):
        with self.chosen():
            return super().state_dict(*args, **kwargs)
