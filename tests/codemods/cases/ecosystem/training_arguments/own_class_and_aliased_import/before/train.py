from dataclasses import dataclass

import transformers as hf
from trl import SFTConfig as Config


@dataclass
class Arguments(hf.TrainingArguments):
    note: str = ""


config = {
    "transformer_layer_cls_to_wrap": ["Block"],  # one unit each
    "backward_prefetch": "backward_pre",
}
first = Arguments("out", fsdp=["shard_grad_op", "auto_wrap"], fsdp_config=config)
second = Config("out", fsdp="full_shard offload")
