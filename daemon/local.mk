# SPDX-License-Identifier: Apache-2.0
# The daemon. Each folder lists its files in its local.mk, in the order of the layers.
sbin_PROGRAMS += cpattnd
cpattnd_SOURCES =
include $(top_srcdir)/daemon/core/local.mk
include $(top_srcdir)/daemon/settings/local.mk
include $(top_srcdir)/daemon/process/local.mk
include $(top_srcdir)/daemon/machine/local.mk
include $(top_srcdir)/daemon/net/local.mk
include $(top_srcdir)/daemon/pool/local.mk
include $(top_srcdir)/daemon/nodes/local.mk
include $(top_srcdir)/daemon/service/local.mk
cpattnd_SOURCES += daemon/app.c
cpattnd_SOURCES += daemon/app.h
cpattnd_SOURCES += daemon/app_hosts.c
cpattnd_SOURCES += daemon/app_hosts.h
cpattnd_SOURCES += daemon/main.c
cpattnd_SOURCES += daemon/notify.c
cpattnd_SOURCES += daemon/notify.h
cpattnd_SOURCES += daemon/reload.c
cpattnd_SOURCES += daemon/reload.h
cpattnd_LDADD = daemon/libcore.a daemon/libserver.a yaml/libyamltree.la $(base_libs) $(EV_LIBS) \
    $(OPENSSL_LIBS) $(SECCOMP_LIBS) $(PROTOBUF_C_LIBS) $(YAML_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
