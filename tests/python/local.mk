# SPDX-License-Identifier: Apache-2.0
test_scripts += tests/python/test_python.sh
test_scripts += tests/python/test_wheel.sh
test_scripts += tests/python/test_guests.sh
test_scripts += tests/python/test_guest_rings.sh
test_scripts += tests/python/test_guest_jobs.sh
test_scripts += tests/python/test_ring_page.sh
test_scripts += tests/python/test_collective_page.sh
EXTRA_DIST += tests/python/guest_faults.py tests/python/guest_faults.sh tests/python/guest_packed.py
EXTRA_DIST += tests/python/guest_rings.py
