from fairscale.nn.data_parallel import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import enable_wrap, wrap

from model import Block


def build(width):
    with enable_wrap(wrapper_cls=FullyShardedDataParallel, flatten_parameters=True):
        return wrap(Block(width))
