"""One file per keyword of FSDP1's constructor: `ls` here is its signature."""
