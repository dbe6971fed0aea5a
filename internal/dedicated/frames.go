package dedicated

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/commandtable"
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

// isMessage says whether a frame with that first word is a message to a subscriber in RESP2.
func isMessage(verb string) bool {
	return verb == "message" || verb == "pmessage" || verb == "smessage"
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
