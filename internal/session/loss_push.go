package session

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/dedicated"
)

// lostPushes is the capability of a client that wants to be told of lost locks. Redis itself pushes nothing that was
// not asked for, and there are libraries that take any push for the reply to their next command.
const lostPushes = "lock-lost"

// lossPushLibraries are libraries, by the name they give with CLIENT SETINFO, that keep such a push apart from replies without
// having asked for it. Whoever adds one shows it in integration/clients.
var lossPushLibraries = []string{"go-redis", "ioredis", "jedis", "lettuce", "node-redis", "redis-py", "redis-rs"}

// clientCapa is CLIENT CAPA capability …, as of Valkey 8: what it does not know it ignores.
func (s *Session) clientCapa(args [][]byte) {
	if hasLossPush(args[2:]) {
		s.take(dedicated.Setting{Of: dedicated.SettingLossPush, Value: "ON"})
	}
	s.ok()
}

// hasLossPush says whether lostPushes is among the capabilities.
func hasLossPush(capabilities [][]byte) bool {
	return slices.ContainsFunc(capabilities, func(c []byte) bool { return equalFold(c, lostPushes) })
}

// takesLossPush says whether a lost lock may be pushed to this client. The caller holds mu.
func (s *Session) takesLossPush() bool {
	if !s.pushes.resp3 {
		return false
	}
	library, _, _ := strings.Cut(s.settings.lib[0], "(") // what builds upon it adds its own name in brackets
	return s.settings.wantsLossPush || slices.Contains(lossPushLibraries, strings.ToLower(library))
}
