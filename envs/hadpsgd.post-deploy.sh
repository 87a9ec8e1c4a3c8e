#!/usr/bin/env bash
# Snakemake runs this in the conda environment: the workflow's own package, beside its pins.
set -euo pipefail
source=${HADPSGD_SOURCE:-$(cd "$(dirname "$0")/.." && pwd)}
if [[ ! -f $source/pyproject.toml ]]; then
  echo "hadpsgd: no checkout at $source: set HADPSGD_SOURCE to one" >&2
  exit 1
fi
python -m pip install --quiet --no-deps "$source"
