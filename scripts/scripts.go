// Package scripts holds the Lua that runs inside Redis: one file for each atomic step, with its KEYS, ARGV and RETURNS on top.
package scripts

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
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
	Acquire = load("acquire", lua("acquire_short fair_short late tell full queue enqueue registration acquire"))
	Release = load("release", lua("release_short late tell full queue registration release"))
	Force   = load("force", lua("late tell queue force"))
	Refresh = load("refresh", lua("late tell full queue enqueue refresh"))
	Leave   = load("leave", lua("late tell queue leave"))
	Handoff = load("handoff", lua("late tell full queue enqueue registration")+step("release", "release")+step("acquire", "acquire")+`
local steps = {release = release, acquire = acquire}
local function wake(publish, _, keys) announce(publish, keys[2], clock()) end
`+lua("handoff"))
	Pass   = load("pass", lua("pass"))
	Renew  = load("renew", lua("renew_short late full registration renew"))
	Extend = load("extend", lua("late full registration extend"))
	Look   = load("look", lua("look"))
	Info   = load("info", lua("rw info"))
	Raise  = load("raise", lua("late raise"))

	// Vacant is for locks of every kind.
	Vacant = load("vacant", lua("late tell queue vacant"))

	// Account touches no lock.
	Account   = load("account", lua("account"))
	Publishes = load("publishes", lua("publishes"))
)

// Those of a read/write lock, with what they share before them. A write hold is renewed and looked at as a plain one.
var (
	ReadAcquire  = load("read_acquire", lua("read_acquire_short late full rw registration read_acquire"))
	ReadRelease  = load("read_release", lua("read_release_short late tell full rw registration read_release"))
	ReadRenew    = load("read_renew", lua("read_renew_short late full rw registration read_renew"))
	ReadExtend   = load("read_extend", lua("late full rw registration read_extend"))
	ReadLook     = load("read_look", lua("rw read_look"))
	WriteAcquire = load("write_acquire", lua("write_acquire_short late full rw registration write_acquire"))
	WriteRelease = load("write_release", lua("write_release_short late tell full rw registration write_release"))
	WriteExtend  = load("write_extend", lua("late full rw registration write_extend"))
	RWForce      = load("rw_force", lua("late tell rw rw_force"))
	RWPass       = load("rw_pass", lua("rw_pass"))
	RWHandoff    = load("rw_handoff", lua("late tell full rw registration")+step("read_release", "read_release")+step("write_release", "write_release")+
		step("read_acquire", "read_acquire")+step("write_acquire", "write_acquire")+`
local steps = {
  read_release = read_release, write_release = write_release, read_acquire = read_acquire, write_acquire = write_acquire,
}
local function wake(publish, channel) tell(publish, channel, '1') end
`+lua("handoff"))
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

// step makes a function of a file, for a script that runs several.
func step(name, file string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + lua(file) + "\nend\n"
}

func load(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Span: "script " + name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
