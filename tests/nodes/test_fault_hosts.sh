#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fault matrix with rank 1 on another host, an agent (tests/daemon/fault_scene.h). Only the
# kinds that an agent reports in different ways. Prints TAP.
: "${top_builddir:=build}"
CPATTN_TEST_DEVICES=1
export CPATTN_TEST_DEVICES
exec "$top_builddir/tests/daemon/test_fault_matrix" any kill abort exit stop garbage
