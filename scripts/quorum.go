package scripts

// The steps on a node of a quorum, by the step on one Redis that each is made of. Each keeps a note beside the hold of which
// attempts count on it.
var (
	Vote = map[*Script]*Script{
		Acquire:      load("vote", lua("late tell full queue enqueue registration stand")+step("acquire", "acquire")+lua("vote")),
		ReadAcquire:  load("read_vote", lua("late full rw registration stand")+step("acquire", "read_acquire")+lua("vote")),
		WriteAcquire: load("write_vote", lua("late full rw registration stand")+step("acquire", "write_acquire")+lua("vote")),
	}
	Retract = map[*Script]*Script{
		Release:      load("retract", lua("late tell full queue registration")+step("release", "release")+lua("retract")),
		ReadRelease:  load("read_retract", lua("late tell full rw registration")+step("release", "read_release")+lua("retract")),
		WriteRelease: load("write_retract", lua("late tell full rw registration")+step("release", "write_release")+lua("retract")),
	}
	Drop = map[*Script]*Script{
		Release:      load("drop", lua("late tell full queue registration")+step("release", "release")+lua("drop")),
		ReadRelease:  load("read_drop", lua("late tell full rw registration")+step("release", "read_release")+lua("drop")),
		WriteRelease: load("write_drop", lua("late tell full rw registration")+step("release", "write_release")+lua("drop")),
	}
	ForceOwners = map[*Script]*Script{
		Force:   load("force_owners", lua("late tell queue")+step("force", "force")+lua("force_owners")),
		RWForce: load("rw_force_owners", lua("late tell rw")+step("force", "rw_force")+lua("rw_force_owners")),
	}
	StandRenew = map[*Script]*Script{
		Renew:     load("stand_renew", lua("late full registration stand")+step("renew", "renew")+lua("stand_renew")),
		ReadRenew: load("stand_read_renew", lua("late full rw registration stand")+step("renew", "read_renew")+lua("stand_renew")),
	}
	StandExtend = map[*Script]*Script{
		Extend:      load("stand_extend", lua("late full registration stand")+step("extend", "extend")+lua("stand_extend")),
		ReadExtend:  load("stand_read_extend", lua("late full rw registration stand")+step("extend", "read_extend")+lua("stand_extend")),
		WriteExtend: load("stand_write_extend", lua("late full rw registration stand")+step("extend", "write_extend")+lua("stand_extend")),
	}
)
