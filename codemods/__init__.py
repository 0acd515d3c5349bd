"""Rewrites FSDP1 code into FSDP2: sources -> facts -> findings -> plan -> text. Never imports torch."""
