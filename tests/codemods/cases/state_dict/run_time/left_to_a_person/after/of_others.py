from composer.core.state import fsdp_state_dict_type_context
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard


def save(state, optimizer):
    with fsdp_state_dict_type_context(state.model, state_dict_type="full"):
        # TODO(fsdp-migrate FM404): use `get_optimizer_state_dict(model, optimizer,
        #   options=...)` from `torch.distributed.checkpoint.state_dict`; its layout is
        #   the same, by parameter name
        return FSDP.optim_state_dict(state.model, optimizer)


def build(registry, settings):
    model = registry.build(settings)
    # TODO(fsdp-migrate FM406): delete the call and say at each state dict call what
    #   kind it gives (`StateDictOptions`)
    model.set_state_dict_type(model, settings.kind)
    return model


def asked_by_others(trainer, folder):
    model = fully_shard(trainer.network)
    # TODO(fsdp-migrate FM401): save with
    #   `get_model_state_dict`/`get_optimizer_state_dict` and load with
    #   `set_model_state_dict`/`set_optimizer_state_dict` of
    #   `torch.distributed.checkpoint.state_dict`, then remove the context
    # TODO(fsdp-migrate FM411): change `StateDictType` together with the
    #   `state_dict_type` calls that take it
    with FSDP.state_dict_type(model, StateDictType[trainer.kind]):
        trainer.library.save(model, folder)
