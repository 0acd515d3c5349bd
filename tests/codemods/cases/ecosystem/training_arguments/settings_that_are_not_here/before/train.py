from transformers import TrainingArguments

args = TrainingArguments(output_dir="out", fsdp="full_shard auto_wrap", fsdp_config="configs/fsdp.json")
