// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/picture.h"

#include <stdarg.h>

#define RANK_GAP    26
#define RANK_HEIGHT (2 * PICTURE_LANE_HEIGHT + PICTURE_LANE_GAP + RANK_GAP)

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else
            fputc(*text, out);
    }
}

void picture_text(const struct picture *p, const char *class, double x, double y,
                  const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    put_escaped(p->out, text);
    fputs("</text>\n", p->out);
}

void picture_rectangle(const struct picture *p, const char *class, double x, double y, double width,
                       double height)
{
    fprintf(p->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>\n",
            class, x, y, width > 0.6 ? width : 0.6, height);
}

// ---- places -----------------------------------------------------------------------------------

double picture_x(const struct picture *p, double seconds)
{
    return PICTURE_LEFT + seconds * p->second;
}

double picture_row_y(int row, enum plan_stream stream)
{
    int lane = stream == STREAM_COMM ? PICTURE_LANE_HEIGHT + PICTURE_LANE_GAP : 0;
    return PICTURE_TOP + row * RANK_HEIGHT + lane;
}

double picture_rank_y(const struct picture *p, int rank, enum plan_stream stream)
{
    return picture_row_y(p->lanes.row[rank], stream);
}

double picture_bottom(const struct picture *p)
{
    return picture_row_y(p->lanes.rows, STREAM_COMPUTE) - RANK_GAP;
}

int picture_text_width(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}
