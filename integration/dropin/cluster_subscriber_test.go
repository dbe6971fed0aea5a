package dropin

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// refusals are what a subscriber in RESP2 is refused, and in which words; and what a client is told that wants no replies.
var refusals = []sequence{
	{"not for subscribers", 2, `
		a: SUBSCRIBE ch
		a: GET k ; SET k v ; MULTI ; EXEC ; DISCARD ; NOSUCH ; SELECT 1 ; HELLO 3 ; AUTH x ; CLIENT ID ; CLIENT REPLY OFF ; INFO ; COMMAND ; PUBLISH ch x ; BLPOP l 0
		a: MONITOR ; UNWATCH ; WATCH k ; CONFIG GET hz ; EVAL x 0 ; EVAL x 1 k ; XGROUP CREATE a b c ; WAIT 0 0 ; CLUSTER INFO ; DBSIZE ; KEYS * ; MGET a b ; PING
		a: UNSUBSCRIBE ; GET k`},
	{"with a wrong number of words", 2, `
		a: SUBSCRIBE ch
		a: EXEC x ; MULTI x ; DISCARD x ; WATCH ; UNWATCH x ; GET ; SET k ; MGET ; AUTH ; SELECT ; SELECT 1 2 ; BLPOP ; EVAL ; DBSIZE x ; KEYS ; INFO
		a: CLIENT ; CLIENT NOSUCH ; CLIENT SETNAME ; CONFIG ; CONFIG NOSUCH ; CONFIG GET ; XGROUP ; XGROUP NOSUCH k ; XGROUP CREATE a ; OBJECT ; OBJECT ENCODING ; SCRIPT ; SCRIPT NOSUCH
		a: SUBSCRIBE ; PSUBSCRIBE ; SSUBSCRIBE ; PING a b c ; RESET x ; MONITOR x ; CLUSTER ; CLUSTER NOSUCH ; COMMAND NOSUCH ; NOSUCH x`},
	{"unsubscribed from nothing, unheard", 0, `
		a 0: CLIENT REPLY OFF
		a 1: UNSUBSCRIBE
		a 3: GET k ; PUNSUBSCRIBE x y ; GET k ; SUNSUBSCRIBE
		a 1: CLIENT REPLY ON
		a 1: CLIENT REPLY SKIP ; UNSUBSCRIBE
		a: PING`},
	{"unsubscribed, unheard", 0, `
		a 0: CLIENT REPLY OFF
		a 2: SUBSCRIBE x y
		a 1: UNSUBSCRIBE x
		a 4: UNSUBSCRIBE x y z ; PUNSUBSCRIBE
		a 1: GET k ; CLIENT REPLY ON`},
}

// Before a cluster a subscriber is refused in the words of a Redis alone, and told of what it would be told there.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	through := harness.StartClusterProxy(t, testredis.StartCluster(t, 3, 0, alikeConfig...))
	single := startPair(t)
	direct := single.direct.Addr()
	harness.Protocols(t, func(t *testing.T, proto int) {
		for _, s := range refusals {
			if s.proto != 0 && s.proto != proto {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				single.mustPlayAlike(t, s, proto)
				want, got := s.run(t, direct, direct, proto), s.run(t, through.Addr(), direct, proto)
				for name, frames := range want {
					if difference := compare(name, frames, got[name]); difference != "" {
						t.Error("before a cluster: " + difference)
					}
				}
			})
		}
	})
}
