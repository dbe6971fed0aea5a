// Package scripts holds the Lua that runs inside Redis: one file for each atomic step, with its KEYS, ARGV and RETURNS on top.
package scripts

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
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
	Acquire = load("acquire", lua("late lease token tell queue enqueue acquire"))
	Release = load("release", lua("late lease tell queue release"))
	Extend  = load("extend", lua("late lease extend"))
	Renew   = load("renew", lua("late renew"))
	Force   = load("force", lua("late tell queue force"))
	Refresh = load("refresh", lua("late tell queue enqueue refresh"))
	Leave   = load("leave", lua("late tell queue leave"))
	Handoff = load("handoff", lua("late lease token tell queue enqueue")+
		step("release", "release", ReleaseArgs)+step("acquire", "acquire", AcquireArgs)+`
local quiet_arg = 5
local function wake(keys) announce(ARGV[3], keys[2], clock()) end
`+lua("handoff"))
)

// Those of a read/write lock, with what they share before them.
var (
	RWAcquire = load("rw_acquire", lua("late lease token rw rw_acquire"))
	RWRelease = load("rw_release", lua("late lease tell rw rw_release"))
	RWExtend  = load("rw_extend", lua("late lease rw rw_extend"))
	RWRenew   = load("rw_renew", lua("late lease rw rw_renew"))
	RWForce   = load("rw_force", lua("late tell rw rw_force"))
	RWHandoff = load("rw_handoff", lua("late lease token tell rw")+
		step("release", "rw_release", RWReleaseArgs)+step("acquire", "rw_acquire", AcquireArgs)+`
local quiet_arg = 7
local function wake(keys) tell(ARGV[3], keys[2], '1') end
`+lua("handoff"))
)

// Those for locks of every kind.
var (
	Look   = load("look", lua("rw look"))
	Info   = load("info", lua("rw info"))
	Vacant = load("vacant", lua("late tell queue vacant"))
	Raise  = load("raise", lua("late token raise"))

	// Vote and RWVote ask a node of a quorum.
	Vote   = load("vote", lua("late lease token tell queue enqueue")+step("acquire", "acquire", AcquireArgs)+lua("vote"))
	RWVote = load("rw_vote", lua("late lease token rw")+step("acquire", "rw_acquire", AcquireArgs)+lua("vote"))

	// Account and Publishes touch no lock.
	Account   = load("account", lua("account"))
	Publishes = load("publishes", lua("publishes"))
)

// The numbers of ARGV of the steps that others run: see handoff.lua and vote.lua.
const (
	AcquireArgs   = 8 // of acquire and of rw_acquire
	ReleaseArgs   = 5
	RWReleaseArgs = 8
)

// lua is the text of some files, one behind the other.
func lua(names string) string {
	var all strings.Builder
	for _, name := range strings.Fields(names) {
		text, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // it is embedded; every test finds it
		}
		all.Write(text)
	}
	return all.String()
}

// step makes a function of a file, for a script that runs several. name_args is how many ARGV it has.
func step(name, file string, args int) string {
	return "local function " + name + "(KEYS, ARGV)\n" + lua(file) + "\nend\nlocal " + name + "_args = " + strconv.Itoa(args) + "\n"
}

func load(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Span: "script " + name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
