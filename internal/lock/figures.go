package lock

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// counts is what the engine counts since its start.
type counts struct {
	granted, lost, expected, renewals, handedOff *telemetry.Counters

	refused atomic.Int64 // lock verbs answered nil
}

// newCounts has losses and ends, of each kind and reason, and renewals that failed begin at 0: to Prometheus a counter that begins
// with the first of them has not grown.
func newCounts() *counts {
	c := &counts{granted: telemetry.NewCounters(), lost: telemetry.NewCounters(), expected: telemetry.NewCounters(),
		renewals: telemetry.NewCounters(), handedOff: telemetry.NewCounters()}
	c.renewals.Add(0, "error", "")
	for _, kind := range lockstore.Kinds {
		for reason := range reasonText {
			count := c.lost
			if askedFor(reason) {
				count = c.expected
			}
			count.Add(0, kind.String(), reason)
		}
	}
	return c
}

// Stats are counts since the start; Held and Waiting are the present numbers.
type Stats struct {
	Held, Waiting, Granted, Lost, Renewed int64

	Refused int64 // lock verbs answered nil
}

// Stats counts what this proxy did and has.
func (m *Manager) Stats() Stats {
	return Stats{
		Held: m.held(), Waiting: m.lines.count(), Granted: m.granted.Value(), Lost: m.lost.Value(),
		Renewed: m.renewals.Of("ok", ""), Refused: m.refused.Load(),
	}
}

func (m *Manager) held() int64 { return m.holds.count() + m.leases.count() }

// Figures say how the figures about locks are read.
func (m *Manager) Figures() telemetry.Readings {
	return telemetry.Readings{
		telemetry.LocksHeld: telemetry.Number(m.held), telemetry.LocksWaiting: telemetry.Number(m.lines.count),
		telemetry.LocksGranted: m.granted.Read, telemetry.LocksLost: m.lost.Read, telemetry.LocksEnded: m.expected.Read,
		telemetry.LocksRenewed: m.renewals.Read, telemetry.LocksHandedOff: m.handedOff.Read,
		telemetry.OldestHold:       telemetry.Number(func() int64 { return oldest(m.holds.each, m.leases.each) }),
		telemetry.LongestWait:      telemetry.Number(func() int64 { return oldest(m.lines.each) }),
		telemetry.LocksUnavailable: m.readUnable, telemetry.QuorumNodes: m.readNodes,
	}
}

// readUnable shows each reason for which there are no locks, also those that are none now, so that alerts end.
func (m *Manager) readUnable(show telemetry.Show) {
	now := ""
	if _, err := m.Able(); err != nil {
		now = lockstore.Reason(err)
	}
	for _, reason := range lockstore.Reasons {
		is := int64(0)
		if reason == now {
			is = 1
		}
		show(is, reason)
	}
}

// readNodes shows each state of a quorum's nodes, also of no node, so that alerts can compare them.
func (m *Manager) readNodes(show telemetry.Show) {
	nodes, count := m.Nodes(), map[string]int64{}
	for _, n := range nodes {
		count[n.State]++
	}
	for _, state := range []string{"up", "young", "down"} {
		if len(nodes) > 0 {
			show(count[state], state)
		}
	}
}
