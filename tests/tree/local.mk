# SPDX-License-Identifier: Apache-2.0
test_scripts += tests/tree/test_layering.sh
test_scripts += tests/tree/test_glibc.sh
test_scripts += tests/tree/test_script_options.sh
test_scripts += tests/tree/test_log_events.sh
test_scripts += tests/tree/test_daemon_script.sh
