"""The bundled job: a small Llama-style decoder, trained under FSDP1 and under FSDP2."""
