import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
)


def save(model, path, rank):
    # TODO(fsdp-migrate FM401): write a DCP directory:
    #   `dcp.save(get_model_state_dict(model), checkpoint_id=...)`; convert old files
    #   with `fsdp-migrate convert-ckpt`
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        torch.save(model.state_dict(), f"{path}.{rank}")
