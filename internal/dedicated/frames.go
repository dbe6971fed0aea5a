package dedicated

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// classifyAt is how many bytes of a frame tell what it is.
const classifyAt = 96

var queuedReply = []byte("+QUEUED\r\n")

// IsRedirect says that a node has refused a command for want of its slot: it has not run, and can be sent again.
func IsRedirect(reply []byte) bool {
	for _, word := range []string{"-MOVED ", "-ASK ", "-TRYAGAIN ", "-CLUSTERDOWN "} {
		if bytes.HasPrefix(reply, []byte(word)) {
			return true
		}
	}
	return false
}

// Aborted tells the errors of EXEC that end the transaction from those that leave all as it was.
func Aborted(reply []byte) bool {
	return bytes.HasPrefix(reply, []byte("-EXECABORT")) || IsRedirect(reply) || bytes.HasPrefix(reply, []byte("-CROSSSLOT")) || bytes.Contains(reply, []byte("EXEC aborted"))
}

// confirmation tells the frame that confirms a subscription, or its end, from others, by its beginning.
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

// isMessage tells what subscribers are sent in RESP2.
func isMessage(verb string) bool {
	return verb == "message" || verb == "pmessage" || verb == "smessage"
}

// monitorLine tells MONITOR's lines from replies: +1700000000.123456 [0 127.0.0.1:1] "get" "k".
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
