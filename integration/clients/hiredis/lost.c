/* hiredis while Redis is lost: each line of the input is something to do, and "did ..." says what the application got. A connection of
 * hiredis' is not made again by itself: the application does that when it is "ready". */
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char host[64];
static int port;
static redisContext *r;

/* Takes n replies and says what came. */
static void replies(redisContext *c, int n) {
    char text[200] = "ok";
    while (n-- > 0) {
        redisReply *got = NULL;
        if (redisGetReply(c, (void **)&got) != REDIS_OK) {
            snprintf(text, sizeof text, "context-%d %s", c->err, c->errstr);
            break;
        }
        if (got->type == REDIS_REPLY_ERROR) snprintf(text, sizeof text, "reply %s", got->str);
        freeReplyObject(got);
    }
    printf("did %s\n", text);
}

static void ready(void) {
    for (;; usleep(50000)) {
        redisReply *got = r && !r->err ? redisCommand(r, "PING") : NULL;
        int well = got && got->type == REDIS_REPLY_STATUS;
        freeReplyObject(got);
        if (well) break;
        if (r) redisFree(r);
        r = redisConnect(host, port);
    }
    puts("did ok");
}

static void subscribe(void) {
    redisContext *c = redisConnect(host, port);
    redisAppendCommand(c, "SUBSCRIBE news");
    for (redisReply *got = NULL; redisGetReply(c, (void **)&got) == REDIS_OK;) {
        int last = got->elements == 3 && got->element[2]->str && !strcmp(got->element[2]->str, "last");
        if (got->elements == 3 && !strcmp(got->element[0]->str, "subscribe")) puts("heard");
        freeReplyObject(got);
        if (last) {
            puts("did ok");
            redisFree(c);
            return;
        }
    }
    printf("did context-%d %s\n", c->err, c->errstr);
    redisFree(c);
}

int main(void) {
    char line[128], *item;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sscanf(getenv("LOCKPROXY_ADDR"), "%63[^:]:%d", host, &port) != 2) return 2;
    r = redisConnect(host, port);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if ((item = strchr(line, ' '))) *item++ = 0;
        int n = 1;
        if (!strcmp(line, "ready")) {
            ready();
            continue;
        } else if (!strcmp(line, "subscribe")) {
            subscribe();
            continue;
        } else if (!strcmp(line, "get")) {
            redisAppendCommand(r, "GET k");
        } else if (!strcmp(line, "push")) {
            redisAppendCommand(r, "RPUSH list %s", item);
        } else if (!strcmp(line, "blpop")) {
            redisAppendCommand(r, "BLPOP queue 0");
        } else {
            int multi = !strcmp(line, "multi");
            if (multi) redisAppendCommand(r, "MULTI");
            redisAppendCommand(r, "RPUSH list %s", item);
            redisAppendCommand(r, "GET k");
            if (multi) redisAppendCommand(r, "EXEC");
            n = multi ? 4 : 2;
        }
        replies(r, n);
    }
    return 0;
}
