"""The configuration: one typed schema with defaults; `load` reads and checks a YAML file."""

from hadpsgd.config.load import fingerprint, load
from hadpsgd.config.schema import Config

__all__ = ["Config", "fingerprint", "load"]
