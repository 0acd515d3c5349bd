from functools import partial

from plugins import register
from fsdp2_sharding import shard_model

register("wrapper", partial(shard_model))
