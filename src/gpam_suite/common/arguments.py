"""Command lines of the scripts that compose no configuration: argparse, with a mistake as one sentence."""

import argparse
from typing import NoReturn

from gpam.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that raises UsageError where argparse would print its usage and leave."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; wanted {self.format_usage().removeprefix('usage: ')}")
