from fairscale.nn.data_parallel import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import enable_wrap, wrap

from model import Block


def build(width):
    # TODO(fsdp-migrate FM105): remove the block and shard what is wrapped in it with
    #   fully_shard and these settings
    with enable_wrap(wrapper_cls=FullyShardedDataParallel, flatten_parameters=True):
        # TODO(fsdp-migrate FM105): call fully_shard on this module once it is built,
        #   before the model around it
        return wrap(Block(width))
