import transformers

# TODO(fsdp-migrate FM617): set `fsdp=True`, `version: 2` in `fsdp_config`, and
#   `parallelism_config=ParallelismConfig(dp_replicate_size=<machines>,
#   dp_shard_size=<processes of one machine>)`
first = transformers.TrainingArguments("out", fsdp="hybrid_shard auto_wrap")
# TODO(fsdp-migrate FM617): pass `fsdp=True`, write "reshard_after_forward": false,
#   "auto_wrap_policy": "NO_WRAP" into "fsdp.json", and run again
second = transformers.TrainingArguments("out", fsdp="shard_grad_op", fsdp_config="fsdp.json")
# TODO(fsdp-migrate FM617): make `fsdp` True here, and let `fsdp_config` say `"version":
#   2` and what the words said (`explain fsdp`)
third = {"output_dir": "out", "fsdp": "full_shard auto_wrap"}
