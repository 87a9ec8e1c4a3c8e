"""`python -m hadpsgd`: what torchrun starts."""

import sys

from hadpsgd.cli import main

sys.exit(main())
