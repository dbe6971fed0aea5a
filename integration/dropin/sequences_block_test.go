package dropin

var blocking = []sequence{
	{"served at once", 0, `
		a: RPUSH l 1 2 3 ; BLPOP l 0 ; BRPOP l 0 ; BLMOVE l m LEFT RIGHT 0 ; BRPOPLPUSH m l 0 ; BLMPOP 0 1 l LEFT COUNT 5
		a: ZADD z 1 a 2 b 3 c ; BZPOPMIN z 0 ; BZPOPMAX z 0 ; BZMPOP 0 1 z MIN`},
	{"served later", 0, `
		a 0: BLPOP x y 0
		blocked 1
		b: RPUSH y 1
		a + 1
		b: LRANGE y 0 -1`},
	{"each kind", 0, `
		a 0: BRPOP x 0
		blocked 1
		b: RPUSH x 1 2
		a + 1
		a 0: BLMOVE y z LEFT RIGHT 0
		blocked 1
		b: RPUSH y 1
		a + 1
		a 0: BRPOPLPUSH y z 0
		blocked 1
		b: RPUSH y 2
		a + 1
		a 0: BLMPOP 0 2 p q RIGHT COUNT 2
		blocked 1
		b: RPUSH q 1 2 3
		a + 1
		a 0: BZPOPMIN s t 0
		blocked 1
		b: ZADD t 1.5 m
		a + 1
		a 0: BZPOPMAX s t 0
		blocked 1
		b: ZADD s 2 m
		a + 1
		a 0: BZMPOP 0 2 s t MAX COUNT 3
		blocked 1
		b: ZADD s 1 m 2 n
		a + 1`},
	{"timed out", 0, `
		a: BLPOP x 0.02 ; BRPOP x 0.02 ; BLMOVE x y LEFT LEFT 0.02 ; BRPOPLPUSH x y 0.02 ; BLMPOP 0.02 1 x LEFT ; BZPOPMIN x 0.02 ; BZPOPMAX x 0.02 ; BZMPOP 0.02 1 x MIN
		a: XREAD BLOCK 20 STREAMS s $ ; GET k`},
	{"wrong", 0, `
		a: SET k v ; BLPOP k 0 ; BLPOP x -1 ; BLPOP x y ; BLPOP x ; BLPOP x 1e400 ; BLPOP x nan ; BLMPOP 0 0 x LEFT ; BLMOVE x y UP LEFT 0 ; BZMPOP 0 1 k MIN ; XREAD BLOCK -1 STREAMS s 0 ; XREAD BLOCK x STREAMS s 0
		a: BLPOP x nosuch k 0`},
	{"pipelined behind one another", 0, `
		a 0: SET k v ; BLPOP x 0 ; GET k ; BLPOP y 0 ; SET k w ; GET k
		a + 1
		blocked 1
		b: RPUSH x 1
		a + 2
		blocked 1
		b: RPUSH y 2
		a + 3`},
	{"pipelined, timed out", 0, `
		a: PING ; BLPOP x 0.03 ; PING ; BLPOP x 0.03 ; GET k ; RPUSH x 1 ; BLPOP x 0 ; PING`},
	{"in order of arrival", 0, `
		a 0: BLPOP x 0
		blocked 1
		b 0: BLPOP x 0
		blocked 2
		c: RPUSH x 1 2
		a + 1
		b + 1`},
	{"one's own list in a transaction", 0, `
		a 0: BLPOP x 0
		blocked 1
		b: MULTI ; RPUSH x 1 ; DEL x ; RPUSH x 2 ; EXEC
		a + 1`},
	{"wrong type arrives", 0, `
		a 0: BLPOP x 0
		blocked 1
		b: SET x v ; DEL x ; RPUSH x 1
		a + 1`},
	{"unblocked", 0, `
		a 0: BLPOP x 0
		blocked 1
		b: CLIENT UNBLOCK {a}
		a + 1
		a 0: BLPOP x 0
		blocked 1
		b: CLIENT UNBLOCK {a} ERROR
		a + 1
		b: CLIENT UNBLOCK {a} ; CLIENT UNBLOCK 999999999 ; CLIENT UNBLOCK x ; CLIENT UNBLOCK {a} FOO
		a: PING`},
	{"unblocked, pipelined", 0, `
		a 0: BLPOP x 0 ; BLPOP y 0 ; PING
		blocked 1
		b: CLIENT UNBLOCK {a} ERROR
		a + 1
		blocked 1
		b: CLIENT UNBLOCK {a} TIMEOUT
		a + 2`},
	{"killed", 0, `
		a 0: BLPOP x 0
		blocked 1
		b: CLIENT KILL ID {a}
		a is closed
		blocked 0
		b: RPUSH x 1 ; LLEN x`},
	{"hang up", 0, `
		a 0: BLPOP x 0
		blocked 1
		a hangs up
		blocked 0
		b: RPUSH x 1 ; LLEN x`},
	{"quit behind", 0, `
		a 0: BLPOP x 0 ; QUIT
		blocked 1
		b: RPUSH x 1
		a is closed
		b: LLEN x`},
	{"reset behind", 0, `
		a 0: SELECT 1 ; BLPOP x 0 ; RESET ; GET k
		blocked 1
		b: SELECT 1 ; RPUSH x 1
		a + 4`},
	{"multi behind", 0, `
		a 0: BLPOP x 0 ; MULTI ; SET k v ; BLPOP x 0 ; EXEC
		blocked 1
		b: RPUSH x 1 2
		a + 5`},
	{"streams", 0, `
		a 0: XREAD BLOCK 0 STREAMS s t $ 0
		blocked 1
		b: XADD t 1-1 f v
		a + 1
		a: XREAD BLOCK 0 STREAMS t 0 ; XREAD COUNT 1 BLOCK 10 STREAMS s t 0 0
		a 0: XREAD BLOCK 0 COUNT 5 STREAMS s $
		blocked 1
		b: XADD s 5-1 a b
		a + 1`},
	{"consumer groups", 0, `
		b: XGROUP CREATE s g $ MKSTREAM
		a 0: XREADGROUP GROUP g c BLOCK 0 STREAMS s >
		blocked 1
		b: XADD s 1-1 f v
		a + 1
		a: XREADGROUP GROUP g c BLOCK 0 STREAMS s 0 ; XREADGROUP GROUP g c BLOCK 10 STREAMS s > ; XACK s g 1-1
		a 0: XREADGROUP GROUP g c BLOCK 0 STREAMS s >
		blocked 1
		b: XGROUP DESTROY s g
		a + 1
		a 0: XGROUP CREATE s g 0 ; XREADGROUP GROUP g c STREAMS s > ; XREADGROUP GROUP g c BLOCK 0 STREAMS s >
		a + 2
		blocked 1
		b: DEL s
		a + 1`},
	{"wait", 0, `
		a: SET k v ; WAIT 0 0 ; WAIT 0 10 ; WAIT 1 20 ; WAIT -1 0 ; WAIT x 0 ; WAIT 0 x ; WAIT 0
		a: SET k v ; WAIT 1 10 ; GET k`},
	{"wait behind wait", 0, `
		a: WAIT 1 10 ; PING ; WAIT 1 10 ; SET k v ; WAIT 1 10`},
	{"in another database", 0, `
		a 0: SELECT 3 ; BLPOP x 0
		blocked 1
		b: RPUSH x 0 ; SELECT 3 ; RPUSH x 3
		a + 2
		b: SWAPDB 0 4 ; SELECT 4 ; LLEN x`},
	{"two lists at once", 0, `
		a 0: BLPOP x y z 0
		blocked 1
		b: MULTI ; RPUSH z 3 ; RPUSH y 2 ; EXEC
		a + 1
		b: LLEN y ; LLEN z`},
	{"from list to list to client", 0, `
		a 0: BLPOP dst 0
		blocked 1
		b 0: BLMOVE src dst LEFT RIGHT 0
		blocked 2
		c: RPUSH src 1
		b + 1
		a + 1`},
	{"another user", 0, `
		b: ACL SETUSER seqb reset on >pw ~x* +@all
		a: AUTH seqb pw ; BLPOP y 0
		a 0: BLPOP x1 0
		blocked 1
		b: RPUSH x1 v
		a + 1
		b: ACL DELUSER seqb`},
	{"flushed", 0, `
		a 0: BLPOP x 0
		blocked 1
		b: FLUSHALL ; RPUSH x 1
		a + 1`},
	{"hello around", 0, `
		a ~: HELLO 3
		a: BLPOP x 0.02
		a ~: HELLO 2
		a: BLPOP x 0.02 ; BZPOPMIN x 0.02`},
	{"messages while blocked", 3, `
		a: SUBSCRIBE ch
		a 0: BLPOP x 0
		blocked 1
		b: PUBLISH ch 1
		a + 1
		b: RPUSH x 1
		a + 1`},
}
