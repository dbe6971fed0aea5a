package backend

import (
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// LimitsOutput says whether settings, which Redis has answered to CONFIG GET, have it close a connection that holds
// many bytes of replies: client-output-buffer-limit of normal clients, or maxmemory-clients.
func LimitsOutput(settings []byte) bool {
	r, _ := resp.ParseReply(settings)
	for i := 0; i+1 < len(r.Elems); i += 2 {
		value := string(r.Elems[i+1].Text)
		switch string(r.Elems[i].Text) {
		case "maxmemory-clients":
			if value != "0" {
				return true
			}
		case "client-output-buffer-limit":
			if limitsNormal(strings.Fields(value)) {
				return true
			}
		}
	}
	return false
}

// limitsNormal looks for the limits of normal clients: a class, the hard limit, the soft limit, and the soft limit's
// seconds, of each class.
func limitsNormal(words []string) bool {
	for ; len(words) >= 4; words = words[4:] {
		if words[0] == "normal" {
			return words[1] != "0" || words[2] != "0"
		}
	}
	return false
}
