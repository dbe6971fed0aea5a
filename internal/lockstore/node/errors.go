package node

import (
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/upstream"
)

// Outcome sorts what the control client says into Redis' own answer (nothing was done), surely not sent, and unknown.
func Outcome(err error) error {
	if err == nil {
		return nil
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return &upstream.ReplyError{Line: redisLine(reply.Error())}
	}
	if upstream.NotSent(err) {
		return &upstream.NotSentError{Cause: err}
	}
	return &upstream.LostError{Cause: err}
}

// serviceNoAuth is Redis' refusal of the service account, which has no password while Redis asks for one.
const serviceNoAuth = "NOAUTH the service account has no password: Redis asks for one now, and --upstream is to have it"

// redisLine gives an error raised inside a script the words it has outside: Redis adds the script's SHA and line, and
// rueidis drops "ERR ".
func redisLine(text string) string {
	if i := strings.Index(text, " script: "); i >= 0 {
		text = text[:i]
	}
	// The user is the service account, which no client may take for its own: Redis calls it "this user" or, from 7.2
	// on, by its name.
	if rest, yes := strings.CutPrefix(text, "NOPERM "); yes && !strings.HasPrefix(rest, "the service account ") {
		if _, what, found := strings.Cut(rest, " has no permissions "); found {
			return "NOPERM the service account has no permissions " + what
		}
	}
	if what, yes := strings.CutPrefix(strings.TrimPrefix(text, "ERR "), "The user executing the script "); yes {
		text = "NOPERM the service account " + what
	}
	if strings.HasPrefix(text, "NOAUTH ") || strings.Contains(text, "unauthenticated multibulk length") || strings.Contains(text, "unauthenticated bulk length") {
		return serviceNoAuth // the last two are what Redis says to long commands, and closes the connection
	}
	code, _, _ := strings.Cut(text, " ")
	if code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "ERR " + text
	}
	return text
}
