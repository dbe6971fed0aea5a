package simulation

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
)

// profile is one kind of run. Times are those of production, more or less: a run has minutes and hours.
type profile struct {
	name    string
	about   string
	stores  []string // by name; none: all
	proxies int      // 0: 2
	users   int      // at each proxy
	options lock.ManagerOptions
	quorum  quorum.StoreOptions // its times, where the locks are on one
	work    history.Workload
	harms   []harm
	pause   time.Duration      // most between two harms
	gap     time.Duration      // most between two sections of a user; 0: that of -gap
	far     time.Duration      // about how far the nodes are
	drive   func(*environment) // what runs instead of users with a workload
	strict  bool               // nothing but users dies: who waits for a free lock gets it
	effects bool               // the counters live long
	share   time.Duration      // a run has 1/share of -duration, because its users hardly rest; 0: all
}

func (p *profile) takes(s store) bool { return len(p.stores) == 0 || slices.Contains(p.stores, s.name) }

const ms, second = time.Millisecond, time.Second

var one = []string{"single", "cluster"} // each lock is on one node

// quorumTimes are the times of a quorum.
var quorumTimes = quorum.StoreOptions{MaxLease: 30 * second, NodeTimeout: 200 * ms}

var profiles = []*profile{
	{
		name: "calm", about: "only users die: every reply is what the model says, and nobody waits for a free lock", stores: one,
		users: 4, strict: true, far: 3 * ms, options: lock.ManagerOptions{Watchdog: 10 * second, Poll: time.Minute},
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Mixed: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true, Stays: true,
			MinLease: 400, MaxLease: 5000, PXShare: 0.4, MaxBlock: 2000, Pause: 800 * ms, KeyLife: 10 * second},
	},
	{
		name: "faults", about: "everything is hurt: links, nodes, clocks, proxies", stores: one,
		users: 4, far: ms, options: lock.ManagerOptions{Watchdog: 6 * second, Poll: 3 * second},
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true,
			MinLease: 500, MaxLease: 5000, PXShare: 0.4, MaxBlock: 3000, Pause: second, KeyLife: 10 * second},
		harms: []harm{dropLink, dropLink, dropLink, cutLink, swallowLink, slowLink, stopNode, flushScripts, killProxy}, pause: 5 * second,
	},
	{
		name: "forgets", about: "nodes restart empty and their clocks jump: two may hold a lock then, and nobody waits for ever", stores: one,
		users: 3, options: lock.ManagerOptions{Watchdog: 6 * second, Poll: 3 * second},
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Limit: 2, Multi: true, Deaths: true, Lapses: true, Unfenced: true,
			MinLease: 500, MaxLease: 5000, PXShare: 0.4, MaxBlock: 3000, Pause: second, KeyLife: 10 * second},
		harms: []harm{restartNode, jumpClock, dropLink, stopNode, killProxy}, pause: 10 * second,
	},
	{
		name: "replies", about: "replies are lost all the time: nothing is done twice, and nothing is forgotten", stores: one,
		proxies: 3, users: 4, far: 3 * ms, options: lock.ManagerOptions{Watchdog: 6 * second, Poll: 3 * second},
		work:  history.Workload{Plain: 3, RW: 3, Limit: 2, MinLease: 1000, MaxLease: 5000, PXShare: 0.2, MaxBlock: 2000, Pause: 800 * ms, KeyLife: 10 * second},
		harms: []harm{dropLink, dropLink, loseReplies}, pause: second,
	},
	{
		name: "clocks", about: "the clocks of nodes are set back: what connections have ends by the clocks of their proxies", stores: one,
		users: 4, options: lock.ManagerOptions{Watchdog: 6 * second, Poll: 3 * second},
		work: history.Workload{Plain: 3, RW: 3, Limit: 2, Deaths: true, Lapses: true, Nameless: true,
			MinLease: 500, MaxLease: 5000, PXShare: 0.6, MaxBlock: 2000, Pause: second, KeyLife: 10 * second},
		harms: []harm{setBack}, pause: 5 * second,
	},
	{
		name: "duels", about: "duels for names used once: without a message nobody tries for a minute", stores: one,
		users: 3, strict: true, far: ms, options: lock.ManagerOptions{Watchdog: time.Minute, Poll: time.Minute}, drive: duels,
	},
	{
		name: "wakeups", about: "duels while subscriptions break, after which everybody tries", stores: one,
		users: 3, strict: true, far: 4 * ms, gap: 2 * second, options: lock.ManagerOptions{Watchdog: time.Minute, Poll: time.Minute}, drive: duels,
		harms: []harm{dropSubscribers}, pause: 2 * second,
	},
	{
		name: "herd", about: "one lock is wanted through many proxies: nobody waits for it while it is free", stores: one,
		proxies: 6, users: 2, strict: true, effects: true, share: 4, gap: 3 * second, options: lock.ManagerOptions{Watchdog: 10 * second, Poll: time.Minute}, drive: func(b *environment) { history.Herd(b.Crew) },
	},
	{
		name: "late", about: "writers sleep past their leases", stores: []string{"single"}, effects: true,
		users: 3, options: lock.ManagerOptions{Watchdog: 3 * second, Poll: second}, drive: func(b *environment) { history.LateWriters(b.Crew) },
		harms: []harm{swallowLink}, pause: 20 * second,
	},
	{
		name: "told", about: "a proxy is cut off: holders there are told before anybody else gets their locks, and do not forget it",
		users: 1, options: lock.ManagerOptions{Watchdog: 9 * second, Poll: second}, quorum: quorumTimes, drive: toldLosses,
	},
	{
		name: "quorum", about: "nodes stop, forget and are cut off, and no two hold one lock", stores: []string{"quorum3", "quorum5"},
		users: 4, options: lock.ManagerOptions{Watchdog: 9 * second, Poll: 3 * second}, quorum: quorumTimes,
		work: history.Workload{Plain: 3, RW: 2, Fair: 1, Multi: true, Force: true, Deaths: true, Lapses: true, Stays: true, Unfenced: true,
			MinLease: 1000, MaxLease: 9000, PXShare: 0.4, MaxBlock: 3000, Pause: 2 * second, KeyLife: 30 * second},
		harms: []harm{stopNode, stopNode, restartOfQuorum, dropLink, dropLink, cutLink, swallowLink, slowLink, isolate, stopMajority, drift, killProxy},
		pause: 10 * second,
	},
	{
		name: "split", about: "named owners ask at once for locks on healthy nodes far away: those that fail leave nothing behind",
		stores: []string{"quorum3", "quorum5"}, proxies: 3, users: 3, far: 20 * ms,
		options: lock.ManagerOptions{Watchdog: 8 * second, Poll: 3 * second}, quorum: quorum.StoreOptions{MaxLease: 30 * second, NodeTimeout: 500 * ms},
		drive: func(b *environment) { history.Splits(b.Crew) },
	},
}

func duels(b *environment) { history.Duels(b.Crew) }
