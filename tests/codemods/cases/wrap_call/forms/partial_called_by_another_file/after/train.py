from functools import partial

from fsdp2_sharding import shard_model
from plugins import register

register("wrapper", partial(shard_model))
