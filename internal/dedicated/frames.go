package dedicated

import (
	"regexp"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// classifyAt is how many bytes of a frame tell what it is.
const classifyAt = 96

var queuedReply = []byte("+QUEUED\r\n")

// Aborted says whether an error of EXEC ends the transaction; other errors leave all as it was.
func Aborted(reply []byte) bool {
	return cluster.RefusedForSlot(reply) || aborts.Match(reply)
}

// aborts matches the other errors that end a transaction.
var aborts = regexp.MustCompile("^-EXECABORT|^-CROSSSLOT|EXEC aborted")

// elements is how many an array has, by its head. It is 0 of null, and of everything else.
func elements(head []byte) int {
	f, _, _ := resp.Next(head)
	if f.Kind != '*' {
		return 0
	}
	return max(f.N, 0)
}

// firstWords are those of what comes by itself to a subscriber, and of what confirms a subscription or, if ends, the
// end of one.
var firstWords = map[string]struct {
	kind frameKind
	of   SubscriptionKind
	ends bool
}{
	"message":      {frameMessage, OfChannel, false},
	"pmessage":     {frameMessage, OfPattern, false},
	"smessage":     {frameMessage, OfShard, false},
	"subscribe":    {frameConfirmation, OfChannel, false},
	"psubscribe":   {frameConfirmation, OfPattern, false},
	"ssubscribe":   {frameConfirmation, OfShard, false},
	"unsubscribe":  {frameConfirmation, OfChannel, true},
	"punsubscribe": {frameConfirmation, OfPattern, true},
	"sunsubscribe": {frameConfirmation, OfShard, true},
}

// FirstText is the first element of an array or push when it is a short string, else "".
func FirstText(frame []byte) string {
	e, _ := resp.Element(frame, 0)
	if e.Kind != '$' || !e.Whole || e.N > commandtable.LongestName {
		return ""
	}
	return string(e.Text)
}

// secondText says whether the second element of an array is that string, as far as the frame's beginning tells.
func secondText(frame []byte, text string) bool {
	e, _ := resp.Element(frame, 1)
	return e.Kind == '$' && e.N == len(text) && strings.HasPrefix(text, string(e.Text))
}

// monitorLine is how a line of MONITOR begins: +1700000000.123456 [0 127.0.0.1:1] "get" "k".
var monitorLine = regexp.MustCompile(`^\+\d+\.\d+ \[`)
