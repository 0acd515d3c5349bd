import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save_optimizer(model, opt, path, logger):
    name = f"optimizer.{dist.get_rank():05d}-of-{dist.get_world_size():05d}.pth"
    torch.save(opt.state_dict(), os.path.join(path, name))
    logger.info("saved")
    dist.barrier()


def save_all(model, opt, path):
    # TODO(fsdp-migrate FM401): write a DCP directory:
    #   `dcp.save(get_model_state_dict(model), checkpoint_id=...)`; convert old files
    #   with `fsdp-migrate convert-ckpt`
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, path)


def save_elsewhere(model, checkpointer):
    # TODO(fsdp-migrate FM401): write a DCP directory:
    #   `dcp.save(get_model_state_dict(model), checkpoint_id=...)`; convert old files
    #   with `fsdp-migrate convert-ckpt`
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        checkpointer.save("last")


class Checkpointer(Base):
    def load(self, *args):
        # TODO(fsdp-migrate FM401): write a DCP directory:
        #   `dcp.save(get_model_state_dict(model), checkpoint_id=...)`; convert old
        #   files with `fsdp-migrate convert-ckpt`
        with FSDP.state_dict_type(self.model, StateDictType.LOCAL_STATE_DICT):
            return super().load(*args)
