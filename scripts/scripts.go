// Package scripts holds the Lua that runs inside Redis: one file for each atomic step, with its KEYS, ARGV and RETURNS on top.
package scripts

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// Script is one Lua script with what EVALSHA and EVAL need to run it.
type Script struct {
	Name   string // the file's name without .lua
	Span   string // what a span is called in which it runs
	Source string
	SHA    string // lower-case hex SHA-1 of Source, as EVALSHA takes it
}

//go:embed late.lua
var late string

//go:embed tell.lua
var tell string

//go:embed full.lua
var full string

//go:embed rw.lua
var rw string

//go:embed queue.lua
var queue string

//go:embed enqueue.lua
var enqueue string

//go:embed registration.lua
var registration string

//go:embed acquire_short.lua
var acquireShort string

//go:embed fair_short.lua
var fairShort string

//go:embed acquire.lua
var acquire string

//go:embed release_short.lua
var releaseShort string

//go:embed release.lua
var release string

//go:embed force.lua
var force string

//go:embed renew.lua
var renew string

//go:embed extend.lua
var extend string

//go:embed look.lua
var look string

//go:embed raise.lua
var raise string

//go:embed info.lua
var info string

//go:embed refresh.lua
var refresh string

//go:embed leave.lua
var leave string

//go:embed vacant.lua
var vacant string

//go:embed handoff.lua
var handoff string

//go:embed pass.lua
var pass string

//go:embed rw_pass.lua
var rwPass string

//go:embed renew_short.lua
var renewShort string

//go:embed read_renew_short.lua
var readRenewShort string

//go:embed publishes.lua
var publishes string

//go:embed account.lua
var account string

//go:embed read_acquire_short.lua
var readAcquireShort string

//go:embed read_release_short.lua
var readReleaseShort string

//go:embed write_acquire_short.lua
var writeAcquireShort string

//go:embed write_release_short.lua
var writeReleaseShort string

//go:embed read_acquire.lua
var readAcquire string

//go:embed read_release.lua
var readRelease string

//go:embed read_renew.lua
var readRenew string

//go:embed read_extend.lua
var readExtend string

//go:embed read_look.lua
var readLook string

//go:embed write_acquire.lua
var writeAcquire string

//go:embed write_release.lua
var writeRelease string

//go:embed write_extend.lua
var writeExtend string

//go:embed rw_force.lua
var rwForce string

// The atomic steps of a plain lock. Each file says what it takes and returns.
var (
	Acquire = load("acquire", acquireShort+fairShort+late+tell+full+queue+enqueue+registration+acquire)
	Release = load("release", releaseShort+late+tell+full+queue+registration+release)
	Force   = load("force", late+tell+queue+force)
	Refresh = load("refresh", late+tell+full+queue+enqueue+refresh)
	Leave   = load("leave", late+tell+queue+leave)
	Handoff = load("handoff", late+tell+full+queue+enqueue+registration+step("release", release)+step("acquire", acquire)+`
local steps = {release = release, acquire = acquire}
local function wake(publish, _, keys) announce(publish, keys[2], clock()) end
`+handoff)
	Pass   = load("pass", pass)
	Renew  = load("renew", renewShort+late+full+registration+renew)
	Extend = load("extend", late+full+registration+extend)
	Look   = load("look", look)
	Info   = load("info", rw+info)
	Raise  = load("raise", late+raise)

	// Vacant is for locks of every kind.
	Vacant = load("vacant", late+tell+queue+vacant)

	// Account touches no lock.
	Account   = load("account", account)
	Publishes = load("publishes", publishes)
)

// Those of a read/write lock, with what they share before them. A write hold is renewed and looked at as a plain one.
var (
	ReadAcquire  = load("read_acquire", readAcquireShort+late+full+rw+registration+readAcquire)
	ReadRelease  = load("read_release", readReleaseShort+late+tell+full+rw+registration+readRelease)
	ReadRenew    = load("read_renew", readRenewShort+late+full+rw+registration+readRenew)
	ReadExtend   = load("read_extend", late+full+rw+registration+readExtend)
	ReadLook     = load("read_look", rw+readLook)
	WriteAcquire = load("write_acquire", writeAcquireShort+late+full+rw+registration+writeAcquire)
	WriteRelease = load("write_release", writeReleaseShort+late+tell+full+rw+registration+writeRelease)
	WriteExtend  = load("write_extend", late+full+rw+registration+writeExtend)
	RWForce      = load("rw_force", late+tell+rw+rwForce)
	RWPass       = load("rw_pass", rwPass)
	RWHandoff    = load("rw_handoff", late+tell+full+rw+registration+step("read_release", readRelease)+step("write_release", writeRelease)+
		step("read_acquire", readAcquire)+step("write_acquire", writeAcquire)+`
local steps = {
  read_release = read_release, write_release = write_release, read_acquire = read_acquire, write_acquire = write_acquire,
}
local function wake(publish, channel) tell(publish, channel, '1') end
`+handoff)
)

// step makes a function of a script, for one that runs several.
func step(name, source string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + source + "\nend\n"
}

func load(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Span: "script " + name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
