package sharded

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// movedSlots is the slots that have another owner now than they had before.
type movedSlots struct {
	before, now *cluster.Snapshot
	at          time.Time // when that was noticed
	shards      []succession
	again       time.Time // when their locks are checked once more
}

// succession is a master and the one that has taken its place.
type succession struct{ old, now *shard }

func (s movedSlots) has(key string) bool {
	slot := cluster.Slot([]byte(key))
	return s.before.Owner(slot) != s.now.Owner(slot)
}

// reason is why a lock of a moved slot is missing: a slot that is migrated takes its keys along, a failover may lose
// some.
func (s movedSlots) reason(key string) string {
	if slices.Contains(s.now.Masters, s.before.Owner(cluster.Slot([]byte(key)))) {
		return lockstore.Gone
	}
	return lockstore.Failover
}

// lookAt makes the engine check every lock of a moved slot where it is now, and all who wait for one try.
func (m *masters) lookAt(s movedSlots) {
	m.host.Recheck(func(key, _ string) string {
		if !s.has(key) {
			return ""
		}
		return s.reason(key)
	})
	m.host.Wake(s.has)
}

// lookAgain is the second look, a little later: the answer of a former master to a verb may have been on its way.
func (m *masters) lookAgain(now time.Time) {
	m.mu.Lock()
	var due []movedSlots
	for len(m.second) > 0 && !now.Before(m.second[0].again) {
		due, m.second = append(due, m.second[0]), m.second[1:]
	}
	m.mu.Unlock()
	for _, s := range due {
		m.lookAt(s)
	}
}

// leads says whether a shard is still that of a master.
func (m *masters) leads(sh *shard) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shards[sh.is] == sh && slices.Contains(m.c.Snapshot().Masters, sh.is)
}

// nextLook is when lookAgain has something to do, if it has.
func (m *masters) nextLook() (at time.Time, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.second) == 0 {
		return at, false
	}
	return m.second[0].again, true
}

// on says whether a key's slot is a shard's.
func (m *masters) on(sh *shard, key string) bool {
	return m.c.Snapshot().Owner(cluster.Slot([]byte(key))) == sh.is
}

// recheck makes the watchdog check every lock that a shard has. What a lock is suspected for already, such as a
// failover, stays the reason: the connections to a new master come later.
func (m *masters) recheck(sh *shard, reason string) {
	m.host.Recheck(func(key, already string) string {
		if !m.on(sh, key) {
			return ""
		}
		return cmp.Or(already, reason)
	})
}

// resubscribed is single.resubscribed for one shard.
func (m *masters) resubscribed(sh *shard) {
	sh.Account.Outdated()
	m.recheck(sh, lockstore.Gone)
	m.host.Wake(func(key string) bool { return m.on(sh, key) })
}

// successions are the masters whose slots went to others when they failed. mu is held.
func (m *masters) successions(before, now *cluster.Snapshot) []succession {
	var all []succession
	seen := map[[2]*cluster.Node]bool{}
	for slot := range cluster.Slots {
		old, new := before.Owner(slot), now.Owner(slot)
		pair := [2]*cluster.Node{old, new}
		if old == new || old == nil || new == nil || seen[pair] {
			continue
		}
		seen[pair] = true
		if s := (succession{m.shards[old], m.shardOf(new)}); s.old != nil && s.now != nil && !slices.Contains(now.Masters, old) {
			all = append(all, s)
		}
	}
	return all
}

// compareClocks moves the deadlines of locks that went to a node whose clock is ahead of the former one's earlier by
// that much: Redis keeps the time at which a key expires, not its lease, and a replica has that time from its master.
// It goes on until the node tells its time, or is no master either.
func (m *masters) compareClocks(gone movedSlots, s succession) {
	if _, known := s.old.Clock.Now(); !known {
		return
	}
	pause := retry.Backoff{First: 10 * time.Millisecond, Most: time.Second}
	for m.sampleOf(s.now) != nil {
		if !m.host.Sleep(context.Background(), pause.Next()) || !m.leads(s.now) {
			return
		}
	}
	is, _ := s.now.Clock.Now()
	was, _ := s.old.Clock.Now() // after the question: the difference is not taken too small
	ahead := time.Duration(is-was) * time.Microsecond
	if ahead < node.ClockTolerance {
		return
	}
	m.host.Log.Warn("the clock of a new master is ahead of the former one's", "node", s.now.is.Addr, "by", ahead)
	m.host.Shorten(ahead, gone.at, func(key string) bool {
		slot := cluster.Slot([]byte(key))
		return gone.before.Owner(slot) == s.old.is && gone.now.Owner(slot) == s.now.is
	})
}
