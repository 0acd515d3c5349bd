from transformers import TrainingArguments

args = TrainingArguments(output_dir="out", fsdp=True, fsdp_config="configs/fsdp.json")
