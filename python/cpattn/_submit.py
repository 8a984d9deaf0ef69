# SPDX-License-Identifier: Apache-2.0
"""The command cpattn-submit of the wheel."""
from __future__ import annotations

import os
import pathlib
import sys
from typing import Optional


def program() -> Optional[str]:
    """Returns the path of the program; None: this installation has no program."""
    path = pathlib.Path(__file__).parent / "bin" / "cpattn-submit"
    return str(path) if path.exists() else None


def main() -> None:
    """Replaces this process by the program."""
    path = program()
    if path is None:
        sys.exit("cpattn-submit is not a part of this installation of the package cpattn")
    os.execv(path, ["cpattn-submit", *sys.argv[1:]])
