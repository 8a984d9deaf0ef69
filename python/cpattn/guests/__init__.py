# SPDX-License-Identifier: Apache-2.0
"""Guests of the package, for the settings of cpattnd: `python3 -m cpattn.guests.NAME`."""
