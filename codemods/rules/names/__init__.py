"""Rules about FSDP1's names and surroundings, one file per idea."""
