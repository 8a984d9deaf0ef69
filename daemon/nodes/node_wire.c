// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/node_wire.h"

#include <config.h> // the build's
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/report.h"

static const struct kind {
    const char *name;
    size_t least, most;
} kinds[] = {
#define NODE_KIND(name, number, least, most) [number] = {#name, least, most},
    NODE_MESSAGE_LIST(NODE_KIND)
#undef NODE_KIND
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static bool type_known(uint32_t type)
{
    return type < KINDS && kinds[type].name;
}

const char *node_message_name(uint32_t type)
{
    return type_known(type) ? kinds[type].name : "?";
}

enum status node_header_check(const struct node_header *header, struct error *error)
{
    if (!type_known(header->type))
        return error_set(error, STATUS_DATA_LOSS, "message type %u is unknown", header->type);
    const struct kind *kind = &kinds[header->type];
    if (header->length < kind->least || header->length > kind->most)
        return error_set(error, STATUS_DATA_LOSS, "%s announces %u bytes instead of %zu to %zu",
                         kind->name, header->length, kind->least, kind->most);
    return STATUS_OK;
}

void node_build_id(char text[NODE_BUILD_ID_MAX])
{
    memset(text, 0, NODE_BUILD_ID_MAX);
    snprintf(text, NODE_BUILD_ID_MAX, PACKAGE_VERSION "/%d/%d/%zu/%zu/%zu", CHANNEL_VERSION,
             NODE_VERSION, sizeof(struct rank_report), sizeof(struct rank_failure),
             sizeof(struct node_start));
}

bool node_text_ok(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return length < size;
}

enum status node_start_check(const struct node_start *start, struct error *error)
{
    if (start->world_size < 1 || start->world_size > WORLD_SIZE_MAX || start->at.pool < 0 ||
        start->at.pool >= POOLS_MAX || start->implementation < 0 ||
        start->implementation > GUESTS_MAX || start->host < 0 || start->host >= HOSTS_MAX)
        return error_set(error, STATUS_DATA_LOSS,
                         "START of a pool of world size %d: pool %d on host %d", start->world_size,
                         start->at.pool, start->host);
    for (int rank = 0; rank < start->world_size; rank++)
        if (start->hosts[rank] >= HOSTS_MAX || start->devices[rank] < 0 ||
            start->devices[rank] >= DEVICES_MAX)
            return error_set(error, STATUS_DATA_LOSS, "START with rank %d on device %d of host %d",
                             rank, start->devices[rank], start->hosts[rank]);
    for (int host = 0; host < HOSTS_MAX; host++)
        if (start->meet[host].port > UINT16_MAX ||
            !node_text_ok(start->meet[host].address, sizeof(start->meet[host].address)))
            return error_set(error, STATUS_DATA_LOSS, "START with an invalid address");
    return STATUS_OK;
}
