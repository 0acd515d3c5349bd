import torch

try:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    HAS_FSDP = True
except ImportError:
    FSDP = None
    ModuleWrapPolicy = None
    HAS_FSDP = False

try:
    from torch.distributed.fsdp import StateDictType
except ImportError:
    StateDictType = None

from model import Block


def wrap_value(model):
    if FSDP is None or ModuleWrapPolicy is None:
        raise RuntimeError("this torch has no FSDP")
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def weights(model):
    if HAS_FSDP and isinstance(model, FSDP):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            return model.state_dict()
    return model.state_dict()


def is_sharded(model):
    return FSDP is not None and isinstance(model, FSDP)
