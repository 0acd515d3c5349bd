import contextlib

from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    ShardedStateDictConfig,
    StateDictType,
)


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and what it added
#   methods of the model
class Sharded(FullyShardedDataParallel):
    # TODO(fsdp-migrate FM411): change `StateDictType` together with the
    #   `state_dict_type` calls that take it
    def __init__(self, model, kind: StateDictType):
        self.kind = kind
        super().__init__(model)

    @contextlib.contextmanager
    def chosen(self):
        # TODO(fsdp-migrate FM412): change `ShardedStateDictConfig` together with the
        #   `state_dict_type` calls that take it
        config = ShardedStateDictConfig()
        # TODO(fsdp-migrate FM411): change `StateDictType` together with the
        #   `state_dict_type` calls that take it
        if self.kind == StateDictType.FULL_STATE_DICT:
            # TODO(fsdp-migrate FM412): change `FullStateDictConfig` together with the
            #   `state_dict_type` calls that take it
            config = FullStateDictConfig(offload_to_cpu=True)
        # TODO(fsdp-migrate FM401): save with
        #   `get_model_state_dict`/`get_optimizer_state_dict` and load with
        #   `set_model_state_dict`/`set_optimizer_state_dict` of
        #   `torch.distributed.checkpoint.state_dict`, then remove the context
        with FullyShardedDataParallel.state_dict_type(self, self.kind, config):
            yield

    def state_dict(self, *args, **kwargs):
        with self.chosen():
            return super().state_dict(*args, **kwargs)
