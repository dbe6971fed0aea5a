package own

import (
	"testing"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// A server of 7.2 or newer is known by what it answers to HELLO, in both protocols.
func TestSince72(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"7.0.15": false, "6.2.0": false, "7.1.240": false, "7.2.0": true, "7.2.4": true, "8.0.1": true,
		"10.0.0": true, "255.255.255": true, "df-v1.2": false, "": false} {
		for _, head := range []string{"*4\r\n", "%2\r\n"} {
			hello := resp.AppendBulk([]byte(head+"$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n"), []byte(version))
			r, ok := resp.ParseReply(hello)
			if !ok || since72(r) != want {
				t.Errorf("%q: %v, %v", hello, ok, since72(r))
			}
		}
	}
	refused, _ := resp.ParseReply([]byte("-ERR unknown command 'HELLO'\r\n"))
	if since72(refused) {
		t.Error("no version is that one")
	}
}

// Of several masters the one that has the fewest acknowledgements counts, of each kind.
func TestLeast(t *testing.T) {
	t.Parallel()
	for want, replies := range map[string][]string{
		":2\r\n":             {":2\r\n"},
		":1\r\n":             {":2\r\n", ":1\r\n", ":10\r\n"},
		"*2\r\n:0\r\n:1\r\n": {"*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:2\r\n"},
	} {
		var all []resp.Reply
		for _, reply := range replies {
			r, _ := resp.ParseReply([]byte(reply))
			r.Raw = []byte(reply)
			all = append(all, r)
		}
		if got := string(least(all)); got != want {
			t.Errorf("%q: %q", replies, got)
		}
	}
}
