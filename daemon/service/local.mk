# SPDX-License-Identifier: Apache-2.0
# Requests to events of the core, its actions to replies.
cpattnd_SOURCES += daemon/service/answer.c
cpattnd_SOURCES += daemon/service/answer.h
cpattnd_SOURCES += daemon/service/answer_cache.c
cpattnd_SOURCES += daemon/service/answer_cache.h
cpattnd_SOURCES += daemon/service/answer_log.c
cpattnd_SOURCES += daemon/service/answer_log.h
cpattnd_SOURCES += daemon/service/core_config.c
cpattnd_SOURCES += daemon/service/core_config.h
cpattnd_SOURCES += daemon/service/gate.c
cpattnd_SOURCES += daemon/service/gate.h
cpattnd_SOURCES += daemon/service/loss_reasons.c
cpattnd_SOURCES += daemon/service/loss_reasons.h
cpattnd_SOURCES += daemon/service/open_requests.c
cpattnd_SOURCES += daemon/service/open_requests.h
cpattnd_SOURCES += daemon/service/fates.c daemon/service/fates.h
cpattnd_SOURCES += daemon/service/order.c daemon/service/order.h
cpattnd_SOURCES += daemon/service/pool_text.c
cpattnd_SOURCES += daemon/service/pool_text.h
cpattnd_SOURCES += daemon/service/reply.c
cpattnd_SOURCES += daemon/service/reply.h
cpattnd_SOURCES += daemon/service/service.c
cpattnd_SOURCES += daemon/service/service.h
cpattnd_SOURCES += daemon/service/service_config.h
cpattnd_SOURCES += daemon/service/tasks.c
cpattnd_SOURCES += daemon/service/tasks.h
