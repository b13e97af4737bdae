"""The command `lottery schema`: the JSON Schema of experiment files, for editors and checkers."""

from lottery.cli.find import print_json


def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of experiment files, with which an editor completes and checks keys.

    Example: lottery schema > schema.json, and in a file's first line # yaml-language-server: $schema=schema.json
    """
    from sweep.experiment import reading

    print_json(reading.schema())
