package subscription

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/dedicated"
)

func TestIsEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind dedicated.SubscriptionKind
		name string
		want bool
	}{
		{dedicated.OfChannel, "__keyspace@0__:k", true}, {dedicated.OfChannel, "__keyevent@0__:del", true}, {dedicated.OfChannel, "__key", false}, {dedicated.OfChannel, "news", false}, {dedicated.OfChannel, "*", false},
		{dedicated.OfPattern, "__keyevent@*", true}, {dedicated.OfPattern, "__key*__:*", true}, {dedicated.OfPattern, "*", true}, {dedicated.OfPattern, "?_keyspace@0__:a", true},
		{dedicated.OfPattern, "_[_]keyspace*", true}, {dedicated.OfPattern, `\__keyspace*`, true}, {dedicated.OfPattern, "news.*", false}, {dedicated.OfPattern, "__keyx*", false},
		{dedicated.OfShard, "__keyspace@0__:k", false},
	} {
		if got := isEvents(dedicated.Subscription{Kind: c.kind, Name: c.name}); got != c.want {
			t.Errorf("%v %q: %v", c.kind, c.name, got)
		}
	}
}

// What a message is, is known as soon as enough of it is there, and never said wrongly before.
func TestEventMessage(t *testing.T) {
	t.Parallel()
	bulk := func(words ...string) string {
		s := ""
		for _, w := range words {
			s += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		return s
	}
	for _, c := range []struct {
		frame string
		is    bool
	}{
		{"*3\r\n" + bulk("message", "__keyspace@0__:k", "del"), true},
		{">3\r\n" + bulk("message", "__keyevent@0__:del", "k"), true},
		{"*4\r\n" + bulk("pmessage", "*", "__keyevent@0__:del", "k"), true},
		{"*4\r\n" + bulk("pmessage", "__keyevent@*", "news", "k"), false},
		{"*4\r\n" + bulk("pmessage", "*", "n", strings.Repeat("__keyspace@", 9)), false},
		{"*3\r\n" + bulk("message", "", ""), false},
		{">3\r\n" + bulk("smessage", "__keyspace@0__:k", "x"), false},
		{"*4\r\n" + bulk("pmessage", "a\r\n$11\r\n__keyspace@*", "b", "c"), false},
	} {
		for n := strings.Index(c.frame, "ssage") + 7; n <= len(c.frame); n++ {
			if is, known := eventMessage([]byte(c.frame[:n])); known && is != c.is || n == len(c.frame) && !known {
				t.Errorf("the first %d bytes of %q: %v, known %v", n, c.frame, is, known)
			}
		}
	}
}
