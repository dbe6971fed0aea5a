package dropin

var subscriptions = []sequence{
	{"subscribe and publish", 0, `
		a: SUBSCRIBE ch
		b: PUBLISH ch hello ; PUBLISH other x
		a + 1
		a: UNSUBSCRIBE ch
		b: PUBLISH ch gone
		a: PING ; GET k`},
	{"many channels in one command", 0, `
		a 3: SUBSCRIBE x y z
		a 2: PSUBSCRIBE x* [yz]
		b: PUBLISH x 1 ; PUBLISH y 2 ; PUBLISH z 3 ; PUBLISH xx 4
		a + 7
		a 2: UNSUBSCRIBE x y
		a 1: UNSUBSCRIBE
		a 2: PUNSUBSCRIBE x* nosuch`},
	{"the same twice", 0, `
		a 2: SUBSCRIBE x x
		a 2: UNSUBSCRIBE x x
		a 1: UNSUBSCRIBE
		a 1: PUNSUBSCRIBE
		a 1: SUNSUBSCRIBE
		a 2: UNSUBSCRIBE p q
		a: GET k`},
	{"unsubscribe from nothing", 0, `
		a: UNSUBSCRIBE ; PUNSUBSCRIBE ; SUNSUBSCRIBE ; UNSUBSCRIBE x ; PUNSUBSCRIBE x ; SUNSUBSCRIBE x ; PING ; SET k v ; GET k`},
	{"sharded", 0, `
		a 2: SSUBSCRIBE s1 s2
		a: SUBSCRIBE s1
		b: SPUBLISH s1 shard ; PUBLISH s1 plain ; SPUBLISH s3 x
		a + 2
		a: SUNSUBSCRIBE s1
		b: SPUBLISH s1 shard ; SPUBLISH s2 shard
		a + 1
		a 1: SUNSUBSCRIBE
		a: UNSUBSCRIBE`},
	{"all three kinds and their counts", 0, `
		a 2: SUBSCRIBE a b
		a 2: PSUBSCRIBE c* d*
		a 2: SSUBSCRIBE e f
		a 1: UNSUBSCRIBE a
		a 1: PUNSUBSCRIBE c*
		a 1: SUNSUBSCRIBE e
		b: PUBSUB CHANNELS ? ; PUBSUB NUMSUB a b ; PUBSUB NUMPAT ; PUBSUB SHARDCHANNELS ; PUBSUB SHARDNUMSUB e f`},
	{"pipelined", 0, `
		a 5: SUBSCRIBE a b ; PSUBSCRIBE c ; UNSUBSCRIBE a ; PING`},
	{"binary and empty", 0, `
		a 3: SUBSCRIBE "" "\x00\r\n" "\xff"
		b: PUBLISH "\x00\r\n" "\r\n+x\r\n" ; PUBLISH "" "" ; PUBLISH "\xff" "\x00"
		a + 3`},
	{"ping", 0, `
		a: PING ; PING x
		a: SUBSCRIBE ch
		a: PING ; PING x ; PING "" ; PING x y
		a: UNSUBSCRIBE
		a: PING ; PING x`},
	{"refused commands", 2, `
		a: SUBSCRIBE ch
		a: GET k ; SET k v ; MULTI ; EXEC ; NOSUCH ; GET ; SELECT 1 ; HELLO 3 ; AUTH x ; CLIENT ID ; CLIENT REPLY OFF ; INFO ; COMMAND ; PUBLISH ch x ; BLPOP l 0 ; MONITOR ; UNWATCH
		a: CLIENT NOSUCH ; CONFIG GET hz ; EVAL x 0 ; XGROUP CREATE a b c ; PING
		a: UNSUBSCRIBE ; GET k`},
	{"lock verbs", 2, `
		a: SUBSCRIBE ch
		a ?: LOCK l ; UNLOCK l ; LOCKINFO l
		a: PING`},
	{"anything goes", 3, `
		a: SUBSCRIBE ch
		a: GET k ; SET k v ; MULTI ; GET k ; EXEC ; NOSUCH ; GET ; SELECT 1 ; GET k ; PING ; UNWATCH ; CLIENT SETNAME me ; CLIENT GETNAME
		a ~: CLIENT ID
		a: UNSUBSCRIBE ch ; GET k`},
	{"to oneself", 3, `
		a: SUBSCRIBE ch
		a 2: PUBLISH ch x
		a 3: PUBLISH ch y ; GET k
		a 1: PSUBSCRIBE c*
		a 3: PUBLISH ch z
		a 6: MULTI ; PUBLISH ch q ; GET k ; EXEC
		a 3: EVAL "return\x20redis.call('PUBLISH','ch','lua')" 0`},
	{"to oneself, sharded", 3, `
		a: SSUBSCRIBE ch
		a 2: SPUBLISH ch x
		a 5: SPUBLISH ch x ; SPUBLISH ch y ; PING`},
	{"hello while subscribed", 3, `
		a: SUBSCRIBE ch
		a ~: HELLO 2
		a: GET k
		b: PUBLISH ch x
		a + 1
		a: UNSUBSCRIBE ch
		a ~: HELLO 3
		b: PUBLISH ch y
		a: GET k`},
	{"hello, then subscribe", 2, `
		a ~: HELLO 3
		a: SUBSCRIBE ch
		b: PUBLISH ch x
		a + 1
		a: GET k`},
	{"quit", 0, `
		a: SUBSCRIBE ch
		a 0: PING ; QUIT
		a is closed
		subscribed 0
		b: PUBLISH ch x`},
	{"reset", 0, `
		a 2: SUBSCRIBE ch ; PSUBSCRIBE c*
		a: RESET
		subscribed 0
		b: PUBLISH ch x
		a: GET k ; PING`},
	{"reset and again", 0, `
		a 2: SUBSCRIBE ch ; RESET
		a: SUBSCRIBE ch
		subscribed 1
		b: PUBLISH ch x
		a + 1`},
	{"hang up", 0, `
		a: SUBSCRIBE ch
		b: PUBLISH ch x
		a + 1
		a hangs up
		b: PING`},
	{"two subscribers", 0, `
		a: SUBSCRIBE ch
		b 2: SUBSCRIBE ch ; PSUBSCRIBE ch
		c: PUBLISH ch 1 ; PUBSUB NUMSUB ch
		a + 1
		b + 2
		a: UNSUBSCRIBE
		c: PUBLISH ch 2
		b + 2`},
	{"messages of a transaction", 0, `
		a: SUBSCRIBE ch
		b: MULTI ; PUBLISH ch 1 ; PUBLISH ch 2 ; EXEC
		a + 2`},
	{"many messages", 0, `
		a: SUBSCRIBE ch
		b: PUBLISH ch 1 ; PUBLISH ch 2 ; PUBLISH ch 3 ; PUBLISH ch 4 ; PUBLISH ch 5 ; PUBLISH ch 6 ; PUBLISH ch 7 ; PUBLISH ch 8 ; PUBLISH ch 9
		a + 9`},
	{"a user's channels", 0, `
		b: ACL SETUSER seqp reset on >pw +@all ~* &ch*
		a: AUTH seqp pw
		a 1: SUBSCRIBE no ch
		a 2: SUBSCRIBE ch ch2
		b: PUBLISH ch x
		a + 1
		a: PSUBSCRIBE * ; PSUBSCRIBE ch*
		b: ACL SETUSER seqp resetchannels
		a is closed
		b: ACL DELUSER seqp`},
	{"keyspace events", 0, `
		b: CONFIG SET notify-keyspace-events KEA
		a: PSUBSCRIBE __key*__:*
		b: SET k v ; DEL k ; CONFIG SET notify-keyspace-events ""
		a + 4`},
	{"wrong arity", 0, `
		a: SUBSCRIBE ; PSUBSCRIBE ; SSUBSCRIBE ; PUBLISH ch ; PUBSUB ; PUBSUB NOSUCH ; PING`},
	{"in a database", 0, `
		a: SELECT 3 ; SUBSCRIBE ch
		b: PUBLISH ch x
		a + 1
		a: UNSUBSCRIBE ; SET k v
		b: SELECT 3 ; GET k`},
	{"after watch", 0, `
		a: WATCH k ; SUBSCRIBE ch ; UNSUBSCRIBE ch
		b: SET k b
		a: MULTI ; GET k ; EXEC`},
}
