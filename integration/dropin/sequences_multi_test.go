package dropin

// plainSequences need no connection of their own upstream.
var plainSequences = []sequence{
	{"select and name", 0, `
		a: SELECT 3 ; SET k v ; CLIENT SETNAME me ; CLIENT GETNAME
		b: GET k ; SELECT 3 ; GET k
		a: RESET ; CLIENT GETNAME ; GET k
		a ?: CLIENT ID`},
	{"hello in between", 0, `
		a: HSET h f v
		a ~: HELLO 3
		a: HGETALL h
		a ~: HELLO 2
		a: HGETALL h ; GET nosuch
		a ~: HELLO
		a: HELLO 4 ; HELLO x ; HGETALL h`},
	{"hello sets a name", 0, `
		a ~: HELLO 3 SETNAME me
		a: CLIENT GETNAME ; HELLO 2 SETNAME "a\x20b" ; HELLO 2 FOO ; HELLO 2 AUTH default
		a: CLIENT GETNAME`},
	{"quit in a pipeline", 0, `
		a 0: SET k v ; QUIT ; SET k w
		a is closed
		b: GET k`},
	{"reset in a pipeline", 0, `
		a ~: SELECT 2 ; HELLO 3 ; SET k v ; RESET ; GET k ; CLIENT GETNAME`},
	{"a protocol error", 0, `
		a: PING
		a: SET k ; NOSUCH ; GET
		a: PING`},
	{"wrong passwords", 0, `
		a: AUTH x ; AUTH default x ; AUTH a b c ; PING
		a: HELLO 3 AUTH nosuch x ; HELLO 2 AUTH default ; PING`},
	{"a user of few rights", 0, `
		a: ACL SETUSER seq reset on >pw ~k* +get +multi +exec +ping +select +hello +reset +client +subscribe +watch &ch*
		b: AUTH seq pw ; GET k ; GET x ; SET k v ; ACL WHOAMI ; PING
		b: RESET ; SET k v
		a: ACL DELUSER seq`},
	{"scripts and functions", 0, `
		a: EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
		b: SCRIPT LOAD "return\x201"
		a: EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0 ; SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db
		a: EVAL "return\x20redis.error_reply('MOVED\x201\x20127.0.0.1:1')" 0
		a: EVAL "return\x20{'a',redis.status_reply('b'),false,1.5}" 0
		b: SCRIPT KILL ; FUNCTION KILL`},
}

var transactions = []sequence{
	{"plain", 0, `
		a: MULTI ; SET k v ; GET k ; HSET h f v ; HGETALL h ; GET nosuch ; EXEC ; GET k`},
	{"step by step", 0, `
		a: MULTI
		a: SET k v
		b: GET k
		a: INCR n
		b: INCR n
		a: EXEC
		b: GET k ; GET n`},
	{"empty", 0, `
		a: MULTI ; EXEC ; MULTI ; DISCARD`},
	{"without multi", 0, `
		a: EXEC ; DISCARD ; UNWATCH ; EXEC x ; DISCARD x ; MULTI x`},
	{"nested", 0, `
		a: MULTI ; SET k v ; MULTI ; GET k ; EXEC
		a: MULTI ; WATCH k ; GET k ; EXEC`},
	{"unknown command when queued", 0, `
		a: MULTI ; SET k v ; NOSUCH x ; SET k w ; EXEC ; GET k ; EXEC`},
	{"wrong arity when queued", 0, `
		a: MULTI ; SET k v ; GET ; EXEC ; GET k
		a: MULTI ; CLIENT NOSUCH ; EXEC
		a: MULTI ; SELECT ; EXEC
		a: MULTI ; CLIENT ID x ; EXEC`},
	{"errors when run", 0, `
		a: SET k v ; MULTI ; LPUSH k x ; INCR k ; SET k w ; LPOP nosuch ; EXEC ; GET k`},
	{"discard", 0, `
		a: MULTI ; SET k v ; DISCARD ; GET k ; EXEC ; MULTI ; NOSUCH ; DISCARD ; GET k`},
	{"watch conflict", 0, `
		a: SET k 1 ; WATCH k ; MULTI ; SET k a
		b: SET k b
		a: EXEC ; GET k
		a: MULTI ; SET k a ; EXEC ; GET k`},
	{"watch no conflict", 0, `
		a: WATCH k x y ; GET k
		b: SET z 1
		a: MULTI ; SET k a ; EXEC ; GET k`},
	{"watch and unwatch", 0, `
		a: WATCH k ; UNWATCH
		b: SET k b
		a: MULTI ; SET k a ; EXEC ; GET k`},
	{"watch, discard", 0, `
		a: WATCH k ; MULTI ; SET k a ; DISCARD
		b: SET k b
		a: MULTI ; GET k ; EXEC`},
	{"watch conflict of one's own", 0, `
		a: WATCH k ; SET k mine ; MULTI ; GET k ; EXEC ; GET k`},
	{"watch in another database", 0, `
		a: WATCH k ; SELECT 5 ; WATCH k
		b: SELECT 5 ; SET k b
		a: MULTI ; GET k ; EXEC ; GET k`},
	{"watch, touched by flushall", 0, `
		a: SET k v ; WATCH k
		b: FLUSHALL
		a: MULTI ; GET k ; EXEC`},
	{"watch, then only commands", 0, `
		a: WATCH k ; GET k ; SET x 1 ; SELECT 1 ; SELECT 0
		b: SET k b
		a: GET k ; MULTI ; EXEC`},
	{"unwatch when queued", 0, `
		a: WATCH k ; MULTI ; UNWATCH ; GET k
		b: SET k b
		a: EXEC`},
	{"select inside", 0, `
		a: SET k 0 ; MULTI ; SELECT 4 ; SET k 4 ; EXEC ; GET k ; SELECT 0 ; GET k
		a: MULTI ; SELECT 99 ; SELECT x ; EXEC ; GET k
		a: MULTI ; SELECT 7 ; DISCARD ; GET k
		a: MULTI ; SELECT 6 ; NOSUCH ; EXEC ; GET k`},
	{"what the proxy answers itself", 0, `
		a: MULTI ; CLIENT SETNAME me ; CLIENT GETNAME ; CLIENT NO-EVICT on ; EXEC ; CLIENT GETNAME
		a 4: MULTI ; CLIENT ID ; ECHO x ; CLIENT ID
		a ~: EXEC
		a 4: MULTI ; INFO server ; CLIENT INFO ; CLIENT LIST
		a ?: EXEC
		a: MULTI ; CLIENT SETNAME "a\x20b" ; CLIENT LIST ID x ; EXEC`},
	{"COMMAND inside", 0, `
		a: MULTI ; COMMAND COUNT ; COMMAND GETKEYS GET k ; COMMAND INFO get
		a ?: EXEC
		a: MULTI ; COMMAND GETKEYS MSET a 1 b 2 ; COMMAND GETKEYS NOSUCH ; EXEC`},
	{"lock verbs inside", 0, `
		a: MULTI ; SET k v
		a ?: LOCK l ; UNLOCK l ; RENEW l ; LOCKINFO l
		a: EXEC ; GET k
		a: MULTI ; SET k v ; EXEC ; GET k`},
	{"quit inside", 0, `
		a 0: MULTI ; SET k v ; QUIT
		a is closed
		b: GET k`},
	{"reset inside", 0, `
		a: SELECT 2 ; MULTI ; SET k v ; RESET ; EXEC ; GET k ; SELECT 2 ; GET k`},
	{"reset while watching", 0, `
		a: WATCH k ; RESET
		b: SET k b
		a: MULTI ; GET k ; EXEC`},
	{"hang up inside", 0, `
		a: MULTI ; SET k v
		a hangs up
		b: GET k ; MULTI ; GET k ; EXEC`},
	{"hello while watching", 0, `
		a: WATCH k
		a ~: HELLO 3
		b: SET k b
		a: MULTI ; GET k ; HGETALL h ; EXEC
		a ~: HELLO 2
		a: MULTI ; HGETALL h ; EXEC`},
	{"blocking commands inside do not block", 0, `
		a: MULTI ; BLPOP nosuch 0 ; BRPOPLPUSH nosuch x 0 ; XREAD BLOCK 0 STREAMS s $ ; BZPOPMIN z 0 ; LPUSH l x ; BLPOP l 0 ; EXEC`},
	{"subscribe inside", 2, `
		a: MULTI ; SUBSCRIBE ch ; SET k v ; EXEC
		b: PUBLISH ch y
		a + 1
		a: GET k ; UNSUBSCRIBE ; GET k`},
	{"subscribe inside", 3, `
		a: MULTI ; SUBSCRIBE ch ; GET k ; PUBLISH ch x ; PSUBSCRIBE c* d* ; UNSUBSCRIBE ch
		a 1: EXEC
		b: PUBLISH ch y`},
	{"messages to itself inside", 0, `
		a 8: MULTI ; SUBSCRIBE ch ; PUBLISH ch x ; PUBLISH ch y ; SELECT 5 ; EXEC
		a: UNSUBSCRIBE ch ; CLIENT GETNAME ; SET k a
		b: WATCH k ; GET k ; MULTI ; SET k b ; EXEC ; GET k
		a: GET k ; MULTI
		b: GET k
		a: CLIENT GETNAME ; EXEC`},
	{"messages to itself inside", 3, `
		a: SUBSCRIBE ch
		a 9: MULTI ; PUBLISH ch x ; GET k ; EXEC ; MULTI ; CLIENT GETNAME ; SET q 1 ; EXEC
		a 5: MULTI ; PUBLISH ch x ; EXEC ; WATCH w
		a: UNSUBSCRIBE ch
		b: SET w 1 ; MULTI ; SET b 2 ; EXEC
		a: MULTI ; SET a 2 ; EXEC`},
	{"a list like a message inside", 2, `
		a 6: RPUSH l message x y ; MULTI ; SUBSCRIBE p q ; LRANGE l 0 -1 ; EXEC
		a: UNSUBSCRIBE p ; UNSUBSCRIBE q ; GET k ; CLIENT GETNAME ; GET k`},
	{"tracking inside", 3, `
		a: MULTI ; CLIENT TRACKING on ; GET k ; EXEC
		b: SET k b
		a + 1`},
	{"scripts inside", 0, `
		a: MULTI ; EVAL "return\x20redis.call('SET',KEYS[1],'v')" 1 k ; EVAL "return\x20redis.call('NOSUCH')" 0 ; EVALSHA 0000000000000000000000000000000000000000 0 ; EXEC ; GET k`},
	{"large and many", 0, `
		a: MULTI ; SETRANGE big 200000 x ; GET big ; STRLEN big ; EXEC
		a: MULTI ; SET a 1 ; SET b 2 ; SET c 3 ; MGET a b c ; DEL a b c ; MGET a b c ; EXEC`},
	{"flushall, swapdb inside", 0, `
		a: SET k 0 ; SELECT 1 ; SET k 1 ; MULTI ; SWAPDB 0 1 ; GET k ; FLUSHDB ; GET k ; EXEC ; SELECT 0 ; GET k`},
	{"a user without rights", 0, `
		a: ACL SETUSER seqm reset on >pw ~k* +get +multi +exec +watch +ping +reset
		b: AUTH seqm pw ; MULTI ; GET k ; SET k v ; EXEC ; MULTI ; GET x ; EXEC ; WATCH x ; WATCH k ; DISCARD
		a: ACL DELUSER seqm`},
	{"a transaction when its user is deleted", 0, `
		a: ACL SETUSER seqd reset on >pw ~* +@all
		b: AUTH seqd pw ; MULTI ; SET k v
		a: ACL SETUSER seqd -set
		b: EXEC ; GET k
		a: ACL DELUSER seqd`},
}
