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

// The atomic steps of a lock. Each file says what it takes and returns.
var (
	Acquire = load("acquire", acquire)
	Release = load("release", release)
	Force   = load("force", force)
	Renew   = load("renew", renew)
	Extend  = load("extend", extend)
	Look    = load("look", look)
	Info    = load("info", info)
)

func load(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
