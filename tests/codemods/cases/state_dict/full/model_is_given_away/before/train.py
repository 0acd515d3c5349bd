from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
)


def save(trainer, model, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        trainer.write(model, path)
