import transformers

first = transformers.TrainingArguments("out", fsdp="hybrid_shard auto_wrap")
second = transformers.TrainingArguments("out", fsdp="shard_grad_op", fsdp_config="fsdp.json")
third = {"output_dir": "out", "fsdp": "full_shard auto_wrap"}
