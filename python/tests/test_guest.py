# SPDX-License-Identifier: Apache-2.0
"""The environment of a guest's process. tests/python/test_guests.sh tests guests under a daemon."""
import ctypes
import os

from cpattn import guest


def test_environment_follows_what_the_library_has_set():
    process = ctypes.CDLL(None)
    os.environ["CPATTN_TEST_GONE"] = os.environ["CPATTN_TEST_KEPT"] = "old"
    process.setenv(b"CUDA_VISIBLE_DEVICES", b"3,5", 1)
    process.setenv(b"CPATTN_TEST_EMPTY", b"", 1)
    process.unsetenv(b"CPATTN_TEST_GONE")
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "3,5"
    guest._environment_follow()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5"
    assert os.environ["CPATTN_TEST_EMPTY"] == ""
    assert os.environ["CPATTN_TEST_KEPT"] == "old"
    assert "CPATTN_TEST_GONE" not in os.environ
    for name in ("CUDA_VISIBLE_DEVICES", "CPATTN_TEST_EMPTY", "CPATTN_TEST_KEPT"):
        del os.environ[name]
