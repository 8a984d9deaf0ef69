# SPDX-License-Identifier: Apache-2.0
dist_noinst_SCRIPTS = scripts/check scripts/quickstart scripts/lint scripts/coverage
dist_noinst_SCRIPTS += scripts/sanitize-cuda
EXTRA_DIST += scripts/lib.sh

test_scripts += scripts/layering
test_scripts += scripts/form

.PHONY: lint
lint:
	$(AM_V_at)$(top_srcdir)/scripts/lint "$(abs_top_builddir)"

.PHONY: coverage
coverage:
	$(AM_V_at)$(top_srcdir)/scripts/coverage "$(abs_top_builddir)"
