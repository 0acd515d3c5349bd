import accelerate as acc
from accelerate.utils import FullyShardedDataParallelPlugin as Plugin

first = acc.FullyShardedDataParallelPlugin(
    fsdp_version=2, state_dict_type="FULL_STATE_DICT", reshard_after_forward=True
)
second = Plugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
