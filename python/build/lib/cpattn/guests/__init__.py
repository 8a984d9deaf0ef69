# SPDX-License-Identifier: Apache-2.0
"""The guests of cpattnd. Run one with `python3 -m cpattn.guests.NAME`."""
