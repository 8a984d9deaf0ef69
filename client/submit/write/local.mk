# SPDX-License-Identifier: Apache-2.0
# For programs: JSON, JUnit, files.
submit_sources += client/submit/write/json.c
submit_sources += client/submit/write/json.h
submit_sources += client/submit/write/junit.c
submit_sources += client/submit/write/junit.h
submit_sources += client/submit/write/markdown.c
submit_sources += client/submit/write/markdown.h
submit_sources += client/submit/write/plain_file.c
submit_sources += client/submit/write/plain_file.h
submit_sources += client/submit/write/report_page.c
submit_sources += client/submit/write/report_page.h
submit_sources += client/submit/write/report_style.c
submit_sources += client/submit/write/report_style.h
submit_sources += client/submit/write/trace.c
submit_sources += client/submit/write/trace.h
