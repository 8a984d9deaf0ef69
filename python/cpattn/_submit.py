# SPDX-License-Identifier: Apache-2.0
"""The command cpattn-submit, which is a part of the wheel."""
from __future__ import annotations

import os
import pathlib
import sys
from typing import Optional


def program() -> Optional[str]:
    """The program of the wheel; None: the package was installed without it."""
    path = pathlib.Path(__file__).parent / "bin" / "cpattn-submit"
    return str(path) if path.exists() else None


def main() -> None:
    """Becomes the program."""
    path = program()
    if path is None:
        sys.exit("cpattn-submit is not a part of this installation of the package cpattn")
    os.execv(path, ["cpattn-submit", *sys.argv[1:]])
