# SPDX-License-Identifier: Apache-2.0
# Matrix files, and cases put together field by field.
submit_sources += client/submit/matrix/fields.c
submit_sources += client/submit/matrix/fields.h
submit_sources += client/submit/matrix/filter.c
submit_sources += client/submit/matrix/filter.h
submit_sources += client/submit/matrix/matrix.c
submit_sources += client/submit/matrix/matrix.h
submit_sources += client/submit/matrix/matrix_fields.c
submit_sources += client/submit/matrix/matrix_fields.h
submit_sources += client/submit/matrix/matrix_list.c
submit_sources += client/submit/matrix/matrix_list.h
submit_sources += client/submit/matrix/matrix_rules.c
submit_sources += client/submit/matrix/matrix_rules.h
submit_sources += client/submit/matrix/shrink.c
submit_sources += client/submit/matrix/shrink.h
