from transformers import TrainingArguments

args = TrainingArguments("out", fsdp="full_shard auto_wrap", fsdp_config="fsdp.json")  # fsdp-migrate: ignore[FM616] made by another tool
