package lockstore

import "strings"

// Registration is the value of the key that is kept beside each hold of a named owner: see scripts/registration.lua. It has the name of the
// LOCK that made the hold, or of the LOCK or RENEW whose proxy has taken the hold over, and marks that say more. No two of these requests
// have the same name.
//
//	name   a watchdog renews the hold
//	-name  no watchdog renews the hold. A proxy sets this mark, and it counts as a part of the name
//	name+  another LOCK relies on the hold, too. Scripts alone set this mark and the next
//	name~  nobody else relies on it, but the registration has replaced that of an earlier hold, whose proxy is told when this one ends
//
// What this proxy asks for, and what it knows of its holds, has no mark after the name; "": no registration is asked for, or known. An
// empty one in Redis says that the hold was given back. On a node of a quorum it may stand beside a hold, too, which nobody renews then.
type Registration string

// The marks.
const (
	unrenewed = "-"
	reliedOn  = "+"
	replaced  = "~"
)

// ParseRegistration reads one that Redis has. It leaves out the mark ~, because only scripts need that.
func ParseRegistration(text string) Registration {
	return Registration(strings.TrimSuffix(text, replaced))
}

// WithRenewals is the registration for a hold that is renewed, or is not.
func (r Registration) WithRenewals(renewed bool) Registration {
	name := strings.TrimPrefix(string(r), unrenewed)
	if renewed {
		return Registration(name)
	}
	return Registration(unrenewed + name)
}

// Renewed says whether somebody renews the hold. One that has no name, only a mark, is of a hold that had no registration when another LOCK
// without renewals came to rely on it.
func (r Registration) Renewed() bool {
	name := r.name()
	return name != "" && !strings.HasPrefix(name, unrenewed)
}

// Names says whether the registration has the name of own, which is this proxy's, whatever stands after it. No registration has no name.
func (r Registration) Names(own Registration) bool { return own != "" && r.name() == string(own) }

// NamesAlone is Names, and no other LOCK relies on the hold.
func (r Registration) NamesAlone(own Registration) bool {
	return r.Names(own) && !strings.HasSuffix(string(r), reliedOn)
}

func (r Registration) name() string { return strings.TrimRight(string(r), reliedOn+replaced) }
