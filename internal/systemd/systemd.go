// Package systemd is what the service manager of that name and this process tell each other: sockets that it has opened, and that
// the process is ready, stops, or is alive. The protocol is left to go-systemd, which systemd's own people keep: it knows sockets in
// the abstract namespace, the process ids that the variables are meant for, and which descriptors are listeners. Without systemd
// nothing here does anything.
package systemd

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Prefix begins an address that stands for sockets which systemd has opened; their FileDescriptorName= follows.
const Prefix = "systemd:"

// Sockets are those that systemd has handed over and nobody has taken yet, by name.
type Sockets map[string][]net.Listener

// Handed takes what systemd has handed over to this process, once.
func Handed() (Sockets, error) {
	all, err := activation.ListenersWithNames()
	return all, err
}

// Take returns the sockets that an address with Prefix stands for.
func (s Sockets) Take(address string) ([]net.Listener, error) {
	name := strings.TrimPrefix(address, Prefix)
	found := s[name]
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: systemd has handed over no stream socket of that name; those left are %q", address, s.Names())
	}
	delete(s, name)
	return found, nil
}

// Names are the names of those that nobody has taken.
func (s Sockets) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Close closes those that nobody has taken.
func (s Sockets) Close() {
	for _, left := range s {
		for _, l := range left {
			l.Close()
		}
	}
}

// The sentences that systemd understands.
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	Alive    = daemon.SdNotifyWatchdog
)

// Tell tells systemd. It cannot be told twice, or otherwise: an error is nobody's to mend.
func Tell(state string) { _, _ = daemon.SdNotify(false, state) }

// Reloading says that settings are read anew, until Ready is told.
func Reloading() { Tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec()) }

// StillStarting asks for more time than TimeoutStartSec.
func StillStarting(d time.Duration) { Tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())) }

// AliveEvery is how often systemd wants to hear Alive at least, with a margin; 0: it does not.
func AliveEvery() time.Duration {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return every / 3
}
