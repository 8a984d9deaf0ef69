# SPDX-License-Identifier: Apache-2.0
# Matrix files of the project, one per line.
casesdir = $(pkgdatadir)/cases
dist_cases_DATA =
