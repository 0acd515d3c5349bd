from composer.core.state import fsdp_state_dict_type_context
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save(state, optimizer):
    with fsdp_state_dict_type_context(state.model, state_dict_type="full"):
        return FSDP.optim_state_dict(state.model, optimizer)


def build(registry, settings):
    model = registry.build(settings)
    model.set_state_dict_type(model, settings.kind)
    return model


def asked_by_others(trainer, folder):
    model = FSDP(trainer.network)
    with FSDP.state_dict_type(model, StateDictType[trainer.kind]):
        trainer.library.save(model, folder)
