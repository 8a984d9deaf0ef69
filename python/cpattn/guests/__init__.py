# SPDX-License-Identifier: Apache-2.0
"""Guests that come with cpattnd, to be run as `python3 -m cpattn.guests.NAME`."""
