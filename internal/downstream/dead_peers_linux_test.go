package downstream

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSilenceOfAPeer: a peer is silent that has not answered what was sent after its last answer, be that long ago or
// not.
func TestSilenceOfAPeer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		info   unix.TCPInfo
		owes   bool
		silent time.Duration
	}{
		"idle":                                {unix.TCPInfo{Last_ack_recv: 90000, Last_data_sent: 90000}, false, 0},
		"sent just now, after a long silence": {unix.TCPInfo{Unacked: 1, Last_ack_recv: 90000, Last_data_sent: 3}, true, 0},
		"retransmitted, answer under way":     {unix.TCPInfo{Unacked: 2, Notsent_bytes: 9, Retransmits: 1, Last_ack_recv: 13056, Last_data_sent: 20}, true, 0},
		"without room, has answered":          {unix.TCPInfo{Unacked: 2, Notsent_bytes: 9, Retransmits: 3, Last_ack_recv: 18468, Last_data_sent: 18468}, true, 0},
		"one probe under way":                 {unix.TCPInfo{Notsent_bytes: 9, Probes: 1, Last_ack_recv: 13000, Last_data_sent: 50000}, true, 0},
		"dead, data":                          {unix.TCPInfo{Unacked: 2, Retransmits: 5, Last_ack_recv: 11500, Last_data_sent: 4800}, true, 11500 * time.Millisecond},
		"dead, probes":                        {unix.TCPInfo{Notsent_bytes: 9, Probes: 3, Last_ack_recv: 11500, Last_data_sent: 50000}, true, 11500 * time.Millisecond},
	} {
		if owes, silent := unanswered(&c.info); owes != c.owes || silent != c.silent {
			t.Errorf("%s: owes %v, silent for %v", name, owes, silent)
		}
	}
}
