#!/usr/bin/env bash
# Snakemake copies this beside the conda environment and runs it there: the package itself, whose
# pins the environment has. rules/common.smk says where the package came from that reads the config.
set -euo pipefail
source=${HADPSGD_SOURCE:-}
if [[ -z $source ]]; then
  echo "hadpsgd: where the package came from is not known: set HADPSGD_SOURCE to a checkout, or to" \
    "what pip installs (git+https://...@TAG)" >&2
  exit 1
fi
install=(python -m pip install --quiet --no-deps --no-build-isolation)
if [[ -d $source && ! -f $source/pyproject.toml ]]; then
  echo "hadpsgd: no checkout at $source: set HADPSGD_SOURCE to one" >&2
  exit 1
elif [[ -d $source ]]; then
  "${install[@]}" --editable "$source" # its code as it is when a job runs, not as it was today
else
  "${install[@]}" "$source"
fi
