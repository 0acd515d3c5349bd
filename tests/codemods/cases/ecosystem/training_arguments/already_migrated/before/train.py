from transformers import TrainingArguments

args = TrainingArguments("out", fsdp=True, fsdp_config={"version": 2, "reshard_after_forward": False})
