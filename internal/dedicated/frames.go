package dedicated

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// classifyAt is how many bytes of a frame tell what it is.
const classifyAt = 96

var queuedReply = []byte("+QUEUED\r\n")

// IsRedirect says that a node has refused a command because the slot is not there: it has not run, and can be sent again.
func IsRedirect(reply []byte) bool {
	for _, word := range []string{"-MOVED ", "-ASK ", "-TRYAGAIN ", "-CLUSTERDOWN "} {
		if bytes.HasPrefix(reply, []byte(word)) {
			return true
		}
	}
	return false
}

// Aborted says whether an error of EXEC ends the transaction; other errors leave all as it was.
func Aborted(reply []byte) bool {
	return bytes.HasPrefix(reply, []byte("-EXECABORT")) || IsRedirect(reply) || bytes.HasPrefix(reply, []byte("-CROSSSLOT")) || bytes.Contains(reply, []byte("EXEC aborted"))
}

// confirmation says, from a frame's beginning, whether it confirms a subscription or the end of one. verb is its first word.
func confirmation(frame []byte) (verb string, yes bool) {
	switch verb = FirstText(frame); verb {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		return verb, true
	}
	return verb, false
}

// FirstText is the first element of an array or push when it is a short string, else "".
func FirstText(frame []byte) string {
	_, rest, ok := bytes.Cut(frame, []byte("\r\n"))
	if !ok || len(rest) == 0 || rest[0] != '$' {
		return ""
	}
	_, rest, ok = bytes.Cut(rest, []byte("\r\n"))
	if !ok {
		return ""
	}
	text, _, ok := bytes.Cut(rest, []byte("\r\n"))
	if !ok || len(text) > commandtable.LongestName {
		return ""
	}
	return string(text)
}

// secondText says whether the second element of an array is that string, as far as the frame's beginning tells.
func secondText(frame []byte, text string) bool {
	for range 3 { // the array's line, and the two of its first element
		var ok bool
		if _, frame, ok = bytes.Cut(frame, []byte("\r\n")); !ok {
			return false
		}
	}
	want := resp.AppendBulk(nil, []byte(text))
	n := min(len(frame), len(want))
	return n > 0 && bytes.Equal(frame[:n], want[:n])
}

// messages are the first words of messages to a subscriber in RESP2, with what they come for.
var messages = map[string]SubscriptionKind{"message": OfChannel, "pmessage": OfPattern, "smessage": OfShard}

func isMessage(verb string) bool {
	_, is := messages[verb]
	return is
}

// monitorLine says whether a frame is a line of MONITOR: +1700000000.123456 [0 127.0.0.1:1] "get" "k".
func monitorLine(frame []byte) bool {
	seconds, rest, ok := bytes.Cut(frame[1:], []byte("."))
	if !ok || len(seconds) == 0 || len(rest) < 8 {
		return false
	}
	for _, c := range append(seconds[:len(seconds):len(seconds)], rest[:6]...) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return rest[6] == ' ' && rest[7] == '['
}
