from dataclasses import dataclass

import transformers as hf
from trl import SFTConfig as Config


@dataclass
class Arguments(hf.TrainingArguments):
    note: str = ""


config = {
    "version": 2,
    "reshard_after_forward": False,
    "transformer_layer_cls_to_wrap": ["Block"],  # one unit each
}
first = Arguments("out", fsdp=True, fsdp_config=config)
second = Config(
    "out",
    fsdp=True,
    fsdp_config={
        "version": 2,
        "reshard_after_forward": True,
        "auto_wrap_policy": "NO_WRAP",
        "cpu_offload": True,
    },
)
