# SPDX-License-Identifier: Apache-2.0
# Output for people: tables, pictures, sentences.
submit_sources += client/submit/show/event_line.c
submit_sources += client/submit/show/event_line.h
submit_sources += client/submit/show/figures.c
submit_sources += client/submit/show/figures.h
submit_sources += client/submit/show/frame.c
submit_sources += client/submit/show/frame.h
submit_sources += client/submit/show/matrix_report.c
submit_sources += client/submit/show/matrix_report.h
submit_sources += client/submit/show/op_label.c
submit_sources += client/submit/show/op_label.h
submit_sources += client/submit/show/picture.c
submit_sources += client/submit/show/picture.h
submit_sources += client/submit/show/picture_ops.c
submit_sources += client/submit/show/picture_ops.h
submit_sources += client/submit/show/progress.c
submit_sources += client/submit/show/progress.h
submit_sources += client/submit/show/report_text.c
submit_sources += client/submit/show/report_text.h
submit_sources += client/submit/show/support.c
submit_sources += client/submit/show/support.h
submit_sources += client/submit/show/svg.c
submit_sources += client/submit/show/svg.h
submit_sources += client/submit/show/table.c
submit_sources += client/submit/show/table.h
submit_sources += client/submit/show/terminal.c
submit_sources += client/submit/show/top.c
submit_sources += client/submit/show/top.h
submit_sources += client/submit/show/terminal.h
submit_sources += client/submit/show/units.c
submit_sources += client/submit/show/units.h
submit_sources += client/submit/show/verdict.c
submit_sources += client/submit/show/verdict.h
submit_sources += client/submit/show/bench_table.c
submit_sources += client/submit/show/bench_table.h
submit_sources += client/submit/show/lanes.c
submit_sources += client/submit/show/lanes.h
submit_sources += client/submit/show/screen.h
if CURSES
submit_sources += client/submit/show/screen.c
else
submit_sources += client/submit/show/screen_none.c
endif
