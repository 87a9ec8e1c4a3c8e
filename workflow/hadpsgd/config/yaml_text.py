"""YAML as configs have it: a key stands once, and what cannot be read is a YAMLError."""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """PyYAML takes the last of equal keys: a second `training:` would undo the first, unsaid."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    what = f"the key '{key.value}' stands here a second time"
                    raise yaml.MarkedYAMLError(problem=what, problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def parsed(text: str) -> Any:
    """The content.

    Raises:
        yaml.YAMLError: it is not YAML, a key stands twice, or a value is none (a date of month 13).
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="brackets within brackets, too many") from None
    except (ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:
        raise yaml.MarkedYAMLError(problem=f"a value that cannot be read ({error})") from None
