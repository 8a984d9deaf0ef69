# SPDX-License-Identifier: Apache-2.0
# Matrix files shipped with the project, one per line.
casesdir = $(pkgdatadir)/cases
dist_cases_DATA =
