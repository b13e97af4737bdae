"""The command `lottery schema`: what may stand in an experiment file, for editors and checkers."""

from __future__ import annotations

import json


def schema() -> None:
    """The JSON Schema (draft 2020-12) of an experiment file: an editor with it completes, explains and checks keys.

    Example: lottery schema > schema.json, and in a file's first line # yaml-language-server: $schema=schema.json
    """
    from sweep.experiment import reading

    print(json.dumps(reading.schema(), indent=1))
