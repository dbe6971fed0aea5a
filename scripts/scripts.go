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
	Source string
	SHA    string // lower-case hex SHA-1 of Source, as EVALSHA takes it
}

//go:embed rw.lua
var rw string

//go:embed acquire.lua
var acquire string

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

//go:embed info.lua
var info string

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

// The atomic steps of a lock. Each file says what it takes and returns.
var (
	Acquire = load("acquire", acquire)
	Release = load("release", release)
	Force   = load("force", force)
	Renew   = load("renew", renew)
	Extend  = load("extend", extend)
	Look    = load("look", look)
	Info    = load("info", rw+info)
)

// Those of a read/write lock, with what they share before them. A write hold is renewed and looked at as a plain one.
var (
	ReadAcquire  = load("read_acquire", rw+readAcquire)
	ReadRelease  = load("read_release", rw+readRelease)
	ReadRenew    = load("read_renew", rw+readRenew)
	ReadExtend   = load("read_extend", rw+readExtend)
	ReadLook     = load("read_look", rw+readLook)
	WriteAcquire = load("write_acquire", rw+writeAcquire)
	WriteRelease = load("write_release", rw+writeRelease)
	WriteExtend  = load("write_extend", rw+writeExtend)
	RWForce      = load("rw_force", rw+rwForce)
)

func load(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
