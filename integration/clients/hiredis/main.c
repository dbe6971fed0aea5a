/* hiredis through lockproxy: every step prints "ok <step>", and the first failure ends the program. */
#include <hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char host[64];
static int port;

static void ok(const char *step) { printf("ok %s\n", step), fflush(stdout); }

static void die(const char *what, redisContext *c, redisReply *r) {
    fprintf(stderr, "%s: reply %s, type %d, integer %lld, context \"%s\"\n", what, r && r->str ? r->str : "-", r ? r->type : -1,
            r ? r->integer : 0, c->errstr);
    exit(1);
}

/* Each of these sends one command and wants one reply. */
#define REPLY(c, cond, ...)                                     \
    do {                                                        \
        redisReply *r = redisCommand(c, __VA_ARGS__);           \
        if (!r || !(cond)) die(#c " " #__VA_ARGS__, c, r);      \
        freeReplyObject(r);                                     \
    } while (0)
#define TEXT(c, want, ...) REPLY(c, r->str && !strcmp(r->str, want), __VA_ARGS__)
#define NUMBER(c, want, ...) REPLY(c, r->type == REDIS_REPLY_INTEGER && r->integer == (want), __VA_ARGS__)
#define NIL(c, ...) REPLY(c, r->type == REDIS_REPLY_NIL, __VA_ARGS__)
#define FAILS(c, code, ...) REPLY(c, r->type == REDIS_REPLY_ERROR && !strncmp(r->str, code " ", strlen(code) + 1), __VA_ARGS__)

/* A connection that gives up on a reply after so many milliseconds. hiredis sends no greeting: RESP3 is asked for here. */
static redisContext *dial(int patience_ms) {
    redisContext *c = redisConnect(host, port);
    if (!c || c->err) die("connect", c, NULL);
    redisSetTimeout(c, (struct timeval){patience_ms / 1000, patience_ms % 1000 * 1000});
    REPLY(c, r->type == REDIS_REPLY_MAP, "HELLO 3");
    return c;
}

/* Asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed. */
static void lose(const char *key) {
    printf("lose %s\n", key), fflush(stdout);
    while (getchar() != '\n') {}
}

static void *push_a_job(void *c) {
    usleep(300000);
    NUMBER(c, 1, "RPUSH queue job");
    return NULL;
}

static void data(redisContext *c) {
    pthread_t thread;
    redisContext *other = dial(5000);
    redisReply *r;

    TEXT(c, "OK", "SET greeting %s EX 60", "hello");
    TEXT(c, "hello", "GET greeting");
    NIL(c, "GET nothing");
    NUMBER(c, 42, "INCRBY n 42");
    ok("strings");

    NUMBER(c, 2, "HSET user name Ada born 1815");
    REPLY(c, r->type == REDIS_REPLY_MAP && r->elements == 4 && !strcmp(r->element[1]->str, "Ada"), "HGETALL user");
    ok("hashes");

    for (int i = 0; i < 1000; i++) redisAppendCommand(c, "SET p:%d %d", i, i), redisAppendCommand(c, "GET p:%d", i);
    for (int i = 0; i < 2000; i++) {
        if (redisGetReply(c, (void **)&r) != REDIS_OK || (i % 2 && atoi(r->str) != i / 2)) die("pipeline", c, r);
        freeReplyObject(r);
    }
    ok("pipeline");

    TEXT(c, "OK", "MULTI");
    TEXT(c, "QUEUED", "SET a 1");
    TEXT(c, "QUEUED", "INCR a");
    REPLY(c, r->elements == 2 && r->element[1]->integer == 2, "EXEC");
    ok("transaction");

    TEXT(c, "OK", "WATCH a");
    TEXT(other, "OK", "SET a %s", "changed by another");
    TEXT(c, "OK", "MULTI");
    TEXT(c, "QUEUED", "SET a %s", "lost update");
    NIL(c, "EXEC");
    TEXT(c, "changed by another", "GET a");
    ok("watch");

    redisSetPushCallback(c, NULL); /* pushes then come as replies */
    REPLY(c, redisIsPushReply(r) && r->element[2]->integer == 1, "SUBSCRIBE news");
    REPLY(other, r->integer == 1 || getenv("LOCKPROXY_NODES"), "PUBLISH news extra"); /* one node counts its own */
    if (redisGetReply(c, (void **)&r) != REDIS_OK || strcmp(r->element[2]->str, "extra")) die("message", c, r);
    freeReplyObject(r);
    REPLY(c, redisIsPushReply(r) && r->element[2]->integer == 0, "UNSUBSCRIBE news");
    TEXT(c, "hello", "GET greeting");
    ok("pubsub");

    NIL(c, "BLPOP queue 1");
    pthread_create(&thread, NULL, push_a_job, other);
    REPLY(c, r->elements == 2 && !strcmp(r->element[1]->str, "job"), "BLPOP queue 4");
    pthread_join(thread, NULL);
    ok("blocking");

    REPLY(c, r->elements == 2 && !strcmp(r->element[0]->str, "k"), "EVAL %s 1 k v", "return {KEYS[1], ARGV[1]}");
    char sha[41] = "";
    REPLY(c, r->str && strcpy(sha, r->str), "SCRIPT LOAD %s", "return tonumber(ARGV[1]) * 2");
    NUMBER(c, 42, "EVALSHA %s 0 21", sha);
    TEXT(c, "OK", "SCRIPT FLUSH");
    FAILS(c, "NOSCRIPT", "EVALSHA %s 0 21", sha);
    ok("scripts");
    redisFree(other);
}

/* Adds one to a counter in two steps ten times, which only the lock makes safe. With an owner of its own for each critical
 * section it would not matter over which connection of a pool the calls travel. */
static void *critical(void *unused) {
    redisContext *c = dial(5000);
    char owner[64];
    for (int i = 0; i < 10; i++) {
        snprintf(owner, sizeof owner, "%d-%lx-%d", getpid(), (unsigned long)pthread_self(), i);
        for (int granted = 0; !granted;)
            REPLY(c, (granted = r->type == REDIS_REPLY_STATUS) || r->type == REDIS_REPLY_NIL, "LOCK section OWNER %s EX 30 BLOCK 2000", owner);
        int count = 0;
        REPLY(c, r->str && (count = atoi(r->str), 1), "GET counter");
        TEXT(c, "OK", "SET counter %d", count + 1);
        NUMBER(c, 1, "UNLOCK section OWNER %s", owner);
    }
    redisFree(c);
    return unused;
}

static void *unlock_busy(void *c) {
    usleep(300000);
    NUMBER(c, 1, "UNLOCK busy");
    return NULL;
}

static void locks(redisContext *c) {
    redisContext *other = dial(5000), *hasty = dial(500);
    pthread_t thread, threads[8];

    TEXT(c, "OK", "LOCK plain"); /* the lock ends with this connection */
    TEXT(c, "OK", "LOCK plain"); /* hiredis names no library: a connection is one holder, who may enter again */
    NUMBER(c, 0, "UNLOCK plain");
    NUMBER(c, 1, "UNLOCK plain");
    FAILS(c, "NOTHELD", "UNLOCK plain");
    ok("lock");

    TEXT(c, "OK", "SET counter 0");
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, critical, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    TEXT(c, "80", "GET counter");
    ok("owner");

    /* Contention: nil at once, then a wait that the other's UNLOCK ends. */
    TEXT(c, "OK", "LOCK busy");
    NIL(other, "LOCK busy");
    pthread_create(&thread, NULL, unlock_busy, c);
    TEXT(other, "OK", "LOCK busy BLOCK 4000");
    pthread_join(thread, NULL);
    ok("contention");

    /* BLOCK shorter than the client's patience: nil. Longer: the connection is of no use any more, and the wait ends with it. */
    NIL(c, "LOCK busy BLOCK 300");
    if (redisCommand(hasty, "LOCK busy BLOCK 60000") || !hasty->err) die("no time-out", hasty, NULL);
    redisFree(hasty);
    NUMBER(other, 1, "UNLOCK busy");
    TEXT(c, "OK", "LOCK busy BLOCK 4000");
    NUMBER(c, 1, "UNLOCK busy");
    ok("block");
    redisFree(other);
}

static char heard[128];

static void hear(void *unused, void *push) {
    (void)unused;
    redisReply *r = push, **e = r->element;
    if (r->elements == 4) snprintf(heard, sizeof heard, "%s %s %s %s", e[0]->str, e[1]->str, e[2]->str, e[3]->str);
    freeReplyObject(push);
}

/* The news of a lost lock arrives while the connection is idle: later replies must be the right ones. */
static void lost(void) {
    redisContext *c = dial(5000);
    redisSetPushCallback(c, hear);        /* called while the next reply is read */
    TEXT(c, "OK", "CLIENT CAPA lock-lost"); /* hiredis names no library: it has to ask for the push */
    TEXT(c, "OK", "LOCK lost");
    lose("lost");
    for (int i = 0; i < 20; i++) {
        char want[16];
        snprintf(want, sizeof want, "%d", i);
        TEXT(c, "OK", "SET after %d", i);
        TEXT(c, want, "GET after");
    }
    FAILS(c, "LOCKLOST", "UNLOCK lost");
    ok("lost");
    if (strcmp(heard, "lock-lost lost plain gone")) die(heard, c, NULL);
    ok("push");
    redisFree(c);
}

int main(void) {
    const char *address = getenv("LOCKPROXY_ADDR"), *parts = getenv("PARTS");
    if (!address || sscanf(address, "%63[^:]:%d", host, &port) != 2) return 2;
    if (!parts) parts = "data,locks";
    redisContext *c = dial(5000);
    REPLY(c, r->str && strstr(r->str, " resp=3"), "CLIENT INFO");
    ok("handshake");
    if (strstr(parts, "data")) data(c);
    if (strstr(parts, "locks")) locks(c), lost();
    redisFree(c);
    return 0;
}
