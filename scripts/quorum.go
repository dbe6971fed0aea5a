package scripts

import _ "embed"

//go:embed stand.lua
var stand string

//go:embed vote.lua
var vote string

//go:embed retract.lua
var retract string

//go:embed drop.lua
var drop string

//go:embed stand_renew.lua
var standRenew string

//go:embed stand_extend.lua
var standExtend string

// The steps on a node of a quorum, by the step on one Redis that each is made of. Each keeps a note beside the hold of which
// attempts count on it.
var (
	Vote = map[*Script]*Script{
		Acquire:      load("vote", late+tell+full+queue+enqueue+registration+stand+step("acquire", acquire)+vote),
		ReadAcquire:  load("read_vote", late+full+rw+registration+stand+step("acquire", readAcquire)+vote),
		WriteAcquire: load("write_vote", late+full+rw+registration+stand+step("acquire", writeAcquire)+vote),
	}
	Retract = map[*Script]*Script{
		Release:      load("retract", late+tell+full+queue+registration+step("release", release)+retract),
		ReadRelease:  load("read_retract", late+tell+full+rw+registration+step("release", readRelease)+retract),
		WriteRelease: load("write_retract", late+tell+full+rw+registration+step("release", writeRelease)+retract),
	}
	Drop = map[*Script]*Script{
		Release:      load("drop", late+tell+full+queue+registration+step("release", release)+drop),
		ReadRelease:  load("read_drop", late+tell+full+rw+registration+step("release", readRelease)+drop),
		WriteRelease: load("write_drop", late+tell+full+rw+registration+step("release", writeRelease)+drop),
	}
	StandRenew = map[*Script]*Script{
		Renew:     load("stand_renew", late+full+registration+stand+step("renew", renew)+standRenew),
		ReadRenew: load("stand_read_renew", late+full+rw+registration+stand+step("renew", readRenew)+standRenew),
	}
	StandExtend = map[*Script]*Script{
		Extend:      load("stand_extend", late+full+registration+stand+step("extend", extend)+standExtend),
		ReadExtend:  load("stand_read_extend", late+full+rw+registration+stand+step("extend", readExtend)+standExtend),
		WriteExtend: load("stand_write_extend", late+full+rw+registration+stand+step("extend", writeExtend)+standExtend),
	}
)
