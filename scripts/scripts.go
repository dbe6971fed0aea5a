// Package scripts holds the Lua that runs inside Redis: one file for each atomic step, with its KEYS, ARGV and RETURNS on top.
package scripts

import (
	"crypto/sha1"
	"embed"
	"fmt"
	"strings"
)

// Script is one Lua script with what EVALSHA and EVAL need to run it.
type Script struct {
	Name   string // the file's name without .lua
	Span   string // what a span is called in which it runs
	Source string
	SHA    string // lower-case hex SHA-1 of Source, as EVALSHA takes it
}

//go:embed *.lua
var files embed.FS

// The atomic steps of a plain lock. Each file says what it takes and returns.
var (
	Acquire = load("acquire", "-- include acquire")
	Release = load("release", "-- include release")
	Extend  = load("extend", "-- include extend")
	Renew   = load("renew", "-- include renew")
	Force   = load("force", "-- include force")
	Refresh = load("refresh", "-- include refresh")
	Leave   = load("leave", "-- include leave")
	Handoff = load("handoff", `
-- include clock
local release_args, acquire_args, quiet_arg, quiet_ask = 6, 9, 5, 10
local function release(KEYS, ARGV)
  -- include release
end
local function acquire(KEYS, ARGV)
  -- include acquire
end
local function may_be_free() return redis.call('EXISTS', KEYS[1]) == 0 end
local function wake_others(publish, keys, proxy)
  -- include announce
  announce(publish, keys, proxy)
end
-- include handoff
`)
)

// Those of a read/write lock.
var (
	RWAcquire = load("rw_acquire", "-- include rw_acquire")
	RWRelease = load("rw_release", "-- include rw_release")
	RWExtend  = load("rw_extend", "-- include rw_extend")
	RWRenew   = load("rw_renew", "-- include rw_renew")
	RWForce   = load("rw_force", "-- include rw_force")
	RWHandoff = load("rw_handoff", `
-- include clock rw
local release_args, acquire_args, quiet_arg, quiet_ask = 9, 11, 7, 11
local function release(KEYS, ARGV)
  -- include rw_release
end
local function acquire(KEYS, ARGV)
  -- include rw_acquire
end
local function may_be_free() return redis.call('EXISTS', KEYS[1]) == 0 end
local function wake_others(publish, keys, proxy)
  -- include wake
  wake(publish, keys, keys[2], '1', proxy)
end
-- include handoff
`)
)

// Those of a lock that several may hold.
var (
	LimitAcquire = load("limit_acquire", "-- include limit_acquire")
	LimitRelease = load("limit_release", "-- include limit_release")
	LimitExtend  = load("limit_extend", "-- include limit_extend")
	LimitRenew   = load("limit_renew", "-- include limit_renew")
	LimitForce   = load("limit_force", "-- include limit_force")
	LimitHandoff = load("limit_handoff", `
-- include clock limit
local release_args, acquire_args, quiet_arg, quiet_ask = 6, 8, 5, 9
local function release(KEYS, ARGV)
  -- include limit_release
end
local function acquire(KEYS, ARGV)
  -- include limit_acquire
end
local function may_be_free() return true end -- the acquire finds out
local function wake_others(publish, keys, proxy)
  announce_places(publish, keys, redis.pcall('GETRANGE', keys[1], '0', '20'), proxy)
end
-- include handoff
`)
)

// Those for locks of every kind.
var (
	Look   = load("look", "-- include look")
	Info   = load("info", "-- include info")
	Vacant = load("vacant", "-- include vacant")
	Raise  = load("raise", "-- include raise")

	// Vote and RWVote ask a node of a quorum.
	Vote = load("vote", `
-- include clock
local acquire_args = 9
local function acquire(KEYS, ARGV)
  -- include acquire
end
-- include vote
`)
	RWVote = load("rw_vote", `
-- include clock rw
local acquire_args = 11
local function acquire(KEYS, ARGV)
  -- include rw_acquire
end
-- include vote
`)

	// Publishes touches no lock.
	Publishes = load("publishes", "-- include publishes")
)

// expand writes a text with what it includes: a line "-- include …" names files, whose text stands in its place. What is included at the beginning of
// a line is there for all that follows, and stands there once; whole names what there is. What is included in a block is defined only when a step comes
// there, since to define a function takes time at each run. Every start of lockproxy does this, which is why it has no regular expression.
func expand(to *strings.Builder, text string, whole map[string]bool, inBlock bool) {
	for line := range strings.Lines(text) {
		indent, names, includes := strings.Cut(line, "-- include ")
		if !includes {
			to.WriteString(line)
			continue
		}
		inBlock := inBlock || indent != ""
		for _, name := range strings.Fields(names) {
			if whole[name] {
				continue
			}
			whole[name] = !inBlock
			file, err := files.ReadFile(name + ".lua")
			if err != nil {
				panic(err) // it is embedded; every test finds it
			}
			expand(to, string(file), whole, inBlock)
		}
	}
}

func load(name, text string) *Script {
	var source strings.Builder
	expand(&source, text, map[string]bool{}, false)
	return &Script{Name: name, Span: "script " + name, Source: source.String(), SHA: fmt.Sprintf("%x", sha1.Sum([]byte(source.String())))}
}
