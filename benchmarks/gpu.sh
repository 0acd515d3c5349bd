#!/usr/bin/env bash
# What can only be measured on a GPU, in at most seven minutes on one: the tests that need it, parity on NCCL,
# the memory of an 8 B model among 8 and 64 ranks, and speed, MFU and overlap of FSDP1 and FSDP2, plain,
# compiled and in float8.
#
#   benchmarks/gpu.sh [--dry-run] [OUT]
#
# Writes OUT/gpu.json and OUT/gpu.txt (default: gpu-results). --dry-run goes the same way on a CPU with small
# sizes, to see that the script runs to its end. Needs what the tests need: pip install -c constraints.txt ".[test]"
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
