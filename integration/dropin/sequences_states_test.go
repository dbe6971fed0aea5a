package dropin

var tracking = []sequence{
	{"a key read", 3, `
		b: SET k 1
		a: CLIENT TRACKING on ; GET k ; GET other
		b: SET k 2 ; SET k 3 ; SET other 1
		a + 2
		a: GET k
		b: DEL k
		a + 1`},
	{"several keys", 3, `
		a: CLIENT TRACKING on ; MGET x y z
		b: MSET x 1 y 2
		a + 2
		b: DEL z ; SET z 1
		a + 1`},
	{"one's own write", 3, `
		a: CLIENT TRACKING on ; GET k
		a 2: SET k 1
		a: SET k 2 ; GET k
		a 2: SET k 3`},
	{"one's own write with noloop", 3, `
		a: CLIENT TRACKING on NOLOOP ; GET k ; SET k 1 ; GET k
		b: SET k 2
		a + 1`},
	{"broadcast", 3, `
		a: CLIENT TRACKING on BCAST PREFIX user: PREFIX item:
		b: SET user:1 x ; SET other x
		a + 1
		b: MSET item:1 x user:2 y
		a + 2
		a: CLIENT TRACKING on BCAST PREFIX user:1
		a ~: CLIENT TRACKINGINFO
		a: CLIENT TRACKING off`},
	{"broadcast of everything", 3, `
		a: CLIENT TRACKING on BCAST
		b: SET k 1
		a + 1
		b: DEL k
		a + 1`},
	{"broadcast with noloop", 3, `
		a: CLIENT TRACKING on BCAST NOLOOP ; SET k 1
		b: SET k 2
		a + 1`},
	{"opt in", 3, `
		a: CLIENT TRACKING on OPTIN ; GET x ; CLIENT CACHING yes ; GET y ; GET z
		b: SET x 1 ; SET y 1 ; SET z 1
		a + 1
		a: CLIENT CACHING no ; CLIENT CACHING yes ; MULTI ; GET p ; GET q ; EXEC
		b: SET p 1 ; SET q 1
		a + 2`},
	{"opt out", 3, `
		a: CLIENT TRACKING on OPTOUT ; GET x ; CLIENT CACHING no ; GET y ; GET z
		b: SET y 1 ; SET x 1 ; SET z 1
		a + 2
		a: CLIENT CACHING yes`},
	{"wrong", 3, `
		a: CLIENT TRACKING ; CLIENT TRACKING x ; CLIENT TRACKING on FOO ; CLIENT TRACKING on OPTIN OPTOUT ; CLIENT TRACKING on PREFIX x ; CLIENT TRACKING on BCAST OPTIN ; CLIENT TRACKING on REDIRECT x
		a: CLIENT TRACKING on REDIRECT 999999999999 ; CLIENT CACHING yes ; CLIENT CACHING x ; CLIENT CACHING ; CLIENT GETREDIR ; CLIENT TRACKINGINFO
		a: CLIENT TRACKING on BCAST PREFIX ab PREFIX abc ; CLIENT TRACKING on BCAST ; CLIENT TRACKING on OPTIN ; CLIENT TRACKING on ; CLIENT TRACKINGINFO ; CLIENT GETREDIR`},
	{"without a redirection", 2, `
		a: CLIENT TRACKINGINFO ; CLIENT GETREDIR ; CLIENT TRACKING off ; CLIENT TRACKING on FOO ; CLIENT CACHING yes`},
	{"flushed", 3, `
		a: CLIENT TRACKING on ; GET k
		b: FLUSHALL
		a + 1
		b: FLUSHDB
		a + 1
		a: GET k`},
	{"switched off and on", 3, `
		a: CLIENT TRACKING on ; GET k ; CLIENT TRACKING off
		b: SET k 1
		a: CLIENT TRACKING on ; GET k
		b: SET k 2
		a + 1
		a: CLIENT TRACKINGINFO`},
	{"reset", 3, `
		a: CLIENT TRACKING on ; GET k ; RESET
		b: SET k 1
		a: CLIENT TRACKINGINFO ; CLIENT GETREDIR ; GET k`},
	{"quit", 3, `
		a: CLIENT TRACKING on ; GET k
		a 0: QUIT
		a is closed
		b: SET k 1`},
	{"hello 2 meanwhile", 3, `
		a: CLIENT TRACKING on ; GET k
		a ~: HELLO 2
		b: SET k 1
		a: GET k ; GET k
		a ~: HELLO 3
		a: GET k
		b: SET k 2
		a + 1`},
	{"in a transaction", 3, `
		a: CLIENT TRACKING on ; MULTI ; GET k ; GET l ; EXEC
		b: MULTI ; SET k 1 ; SET l 1 ; EXEC
		a + 2`},
	{"in a script", 3, `
		a: CLIENT TRACKING on ; EVAL "return\x20redis.call('GET','k')" 1 k
		b: SET k 1
		a + 1`},
	{"with a subscription", 3, `
		a: CLIENT TRACKING on ; SUBSCRIBE ch ; GET k
		b: SET k 1
		a + 1
		b: PUBLISH ch x
		a + 1
		a: UNSUBSCRIBE ; GET k
		b: SET k 2
		a + 1`},
	{"while blocked", 3, `
		a: CLIENT TRACKING on ; GET k
		a 0: BLPOP l 0
		blocked 1
		b: SET k 1
		a + 1
		b: RPUSH l 1
		a + 1`},
	{"in another database", 3, `
		a: CLIENT TRACKING on ; SELECT 3 ; GET k
		b: SET k 0
		a + 1`},
}

var states = []sequence{
	{"reply off, on", 0, `
		a 1: CLIENT REPLY OFF ; SET k v ; GET k ; NOSUCH ; CLIENT REPLY ON
		a: GET k`},
	{"reply skip", 0, `
		a 1: CLIENT REPLY SKIP ; SET k v ; GET k
		a 1: CLIENT REPLY SKIP ; NOSUCH ; GET k
		a 1: CLIENT REPLY SKIP ; CLIENT REPLY SKIP ; SET k w ; GET k`},
	{"reply on when on", 0, `
		a: CLIENT REPLY ON ; CLIENT REPLY FOO ; CLIENT REPLY ; CLIENT REPLY ON x`},
	{"reply off when off", 0, `
		a 1: CLIENT REPLY OFF ; CLIENT REPLY OFF ; CLIENT REPLY SKIP ; SET k v ; CLIENT REPLY ON ; SET l v
		a + 1
		a: GET k`},
	{"reply off, what the proxy answers", 0, `
		a 1: CLIENT REPLY OFF ; CLIENT ID ; SELECT 2 ; CLIENT SETNAME me ; INFO ; COMMAND COUNT ; CLIENT REPLY ON
		a: CLIENT GETNAME ; SET k v
		b: SELECT 2 ; GET k`},
	{"reply off, lock verbs", 0, `
		a 1: CLIENT REPLY OFF ; LOCK l ; UNLOCK l ; CLIENT REPLY ON
		a: PING`},
	{"reply off, multi", 0, `
		a 1: CLIENT REPLY OFF ; MULTI ; SET k v ; EXEC ; CLIENT REPLY ON
		a: GET k
		a 2: CLIENT REPLY SKIP ; MULTI ; SET k w ; EXEC`},
	{"reply off, reset", 0, `
		a 2: CLIENT REPLY OFF ; GET k ; RESET ; GET k`},
	{"reply skip, reset", 0, `
		a 1: CLIENT REPLY SKIP ; RESET ; GET k`},
	{"reply off, blocking", 0, `
		a 0: CLIENT REPLY OFF ; BLPOP x 0 ; SET k v ; CLIENT REPLY ON
		blocked 1
		b: RPUSH x 1
		a + 1
		b: GET k ; LLEN x`},
	{"reply skip, blocking", 0, `
		a 0: CLIENT REPLY SKIP ; BLPOP x 0 ; GET k
		blocked 1
		b: RPUSH x 1
		a + 1`},
	{"reply off, subscribe", 0, `
		a 1: CLIENT REPLY OFF ; SUBSCRIBE ch ; PING
		a 1: RESET
		subscribed 0
		b: PUBLISH ch x`},
	{"reply off, subscribed", 3, `
		a: SUBSCRIBE ch
		a 1: CLIENT REPLY OFF ; GET k ; CLIENT REPLY ON
		b: PUBLISH ch x
		a + 1`},
	{"reply off, hello", 0, `
		a 1: CLIENT REPLY OFF ; HELLO 3 ; CLIENT REPLY ON
		a: HGETALL h`},
	{"reply off, hang up", 0, `
		a 0: CLIENT REPLY OFF ; SET k v
		a hangs up
		b: PING`},
	{"monitor", 0, `
		a ?: MONITOR x`},
	{"everything after another", 0, `
		a: MULTI ; SET k v ; EXEC ; WATCH k ; SUBSCRIBE ch ; UNSUBSCRIBE ch ; MULTI ; GET k ; EXEC ; SELECT 1 ; BLPOP x 0.02 ; RESET ; GET k`},
	{"everything after another with three", 3, `
		a: CLIENT TRACKING on ; GET k ; SUBSCRIBE ch ; MULTI ; GET k ; EXEC ; CLIENT TRACKING off ; UNSUBSCRIBE ; GET k
		a ~: HELLO 2
		a: SUBSCRIBE ch ; UNSUBSCRIBE ; BLPOP x 0.02 ; GET k`},
	{"state is not handed on", 0, `
		a: SELECT 3 ; CLIENT SETNAME me ; WATCH k ; MULTI ; SET k v
		a hangs up
		b: SELECT 3 ; MULTI ; GET k ; EXEC ; CLIENT GETNAME
		c: GET k ; CLIENT GETNAME ; EXEC
		d: SUBSCRIBE ch
		d hangs up
		e: GET k ; PING`},
	{"readonly and asking", 0, `
		a: ASKING ; READONLY x ; GET k`},
	{"pause", 0, `
		a: CLIENT PAUSE x ; CLIENT PAUSE 1 ; CLIENT UNPAUSE ; CLIENT UNPAUSE x ; CLIENT PAUSE 1 FOO ; PING`},
}
