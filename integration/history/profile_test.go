package history

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
)

// profile is one kind of run.
type profile struct {
	name     string
	named    bool // it runs only when -profile names it: many servers, whose failovers take long
	about    string
	proxies  int           // 0: drawn, 2 to 4
	upstream string        // alone, unless it is another one
	refusals []string      // the beginnings of errors that Redis answers
	nodes    int           // of a quorum that has the locks; 0: none
	clients  int           // at each proxy
	all      int           // clients at all proxies together; 0: as many as clients says
	gap      time.Duration // most between two sections of a client; 0: none
	args     []string
	watchdog time.Duration
	work     history.Workload
	harms    []harm
	pause    time.Duration // most between two harms
	least    time.Duration // how long it works at least
	nemeses  int           // that hurt at one time; 0: one
	latency  time.Duration // of the wires to Redis, so that replies are on the way for some time
	far      bool          // the nodes of the quorum are 30 to 50 ms away, and each proxy is nearest to another one
	drive    func(*round)  // what runs instead of clients with a workload
	effects  bool          // unfenced writers must lose updates
	strict   bool          // nothing but clients dies: who waits for a free lock gets it
}

// sized is the profile with so many proxies, and so many clients in all; 0: its own number. As many clients as before want one lock, and as
// much is asked at one time by a hundred clients as by a dozen.
func (p *profile) sized(proxies, clients int) *profile {
	sized := *p
	if proxies > 0 {
		sized.proxies = proxies
	}
	if clients == 0 {
		return &sized
	}
	sized.all = clients
	if times := clients / (3 * p.clients); times > 1 {
		sized.gap = time.Duration(times) * 25 * time.Millisecond
		for _, names := range []*int{&sized.work.Plain, &sized.work.RW, &sized.work.Fair, &sized.work.Mixed, &sized.work.Limit} {
			*names *= times
		}
	}
	return &sized
}

func (p *profile) flags() []string {
	return append([]string{"--lock-watchdog-timeout", p.watchdog.String()}, p.args...)
}

// profiles are those of a run that names none.
var profiles = []*profile{
	{
		name: "calm", about: "only clients die: every reply is what the model says, and nobody waits for a free lock",
		clients: 4, watchdog: time.Minute, args: []string{"--wait-poll", "20s"}, strict: true,
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Mixed: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true,
			MinLease: 100, MaxLease: 600, PXShare: 0.4, MaxBlock: 400, Pause: 4 * time.Millisecond},
	},
	{
		name: "faults", about: "everything dies and stops: replies are lost, proxies and Redis are stopped and killed",
		clients: 4, watchdog: 1500 * time.Millisecond, args: []string{"--wait-poll", "1s"},
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true,
			MinLease: 100, MaxLease: 1000, PXShare: 0.4, MaxBlock: 600, Pause: 6 * time.Millisecond},
		harms: []harm{cutReplies, cutReplies, cutReplies, killClients, killSubscribers, flushScripts, pauseClients, stopRedis, stopProxy, killProxy},
		pause: 300 * time.Millisecond, latency: time.Millisecond,
	},
	{
		name: "aof", about: "Redis keeps its data and is killed all the time, its disk is full, and links break: nothing is lost but by time", upstream: kept,
		clients: 4, watchdog: 3 * time.Second, least: 4 * time.Second, args: []string{"--wait-poll", "1s"}, refusals: []string{"MISCONF ", "LOADING "},
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true,
			MinLease: 200, MaxLease: 3000, PXShare: 0.4, MaxBlock: 600, Pause: 20 * time.Millisecond},
		harms: []harm{killKept, killKept, fillDisk, refuseWrites, cutReplies, cutReplies, dropReplies, swallowLink, slowLink, stopRedis, stopProxy, killProxy},
		pause: time.Second,
	},
	{
		name: "sentinel", about: "masters are killed, stopped and cut off: what was granted then may be lost, and nothing else",
		upstream: sentinels, named: true, clients: 4, watchdog: 3 * time.Second, least: 12 * time.Second, args: []string{"--wait-poll", "1s"},
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true,
			MinLease: 200, MaxLease: 3000, PXShare: 0.4, MaxBlock: 600, Pause: 20 * time.Millisecond},
		harms: []harm{orderMaster, killMaster, freezeMaster, partMaster, killReplica, killClients, killClients, closeLink, swallowLink, stopRedis, stopProxy, killProxy},
		pause: 2 * time.Second,
	},
	{
		name: "cluster", about: "slots move and links break, and nothing is lost; masters are killed and stopped: what was granted there may be lost",
		upstream: clustered, named: true, clients: 4, watchdog: 3 * time.Second, least: 12 * time.Second, args: []string{"--wait-poll", "1s"},
		refusals: []string{"CLUSTERDOWN "}, // of FENCED, after --cluster-retry
		work: history.Workload{Plain: 2, RW: 2, Fair: 1, Limit: 2, Multi: true, Force: true, Deaths: true, Lapses: true,
			MinLease: 200, MaxLease: 3000, PXShare: 0.4, MaxBlock: 600, Pause: 20 * time.Millisecond},
		harms: []harm{moveSlots, moveSlots, moveSlots, orderNode, killNode, freezeNode, killReplica, killClients, resetLink, closeLink, dropReplies,
			swallowLink, slowLink, stopRedis, stopProxy, killProxy},
		pause: time.Second,
	},
	{
		name: "replies", about: "replies are lost all the time: nothing is done twice, and nothing is forgotten",
		proxies: 3, clients: 8, watchdog: 3 * time.Second, args: []string{"--wait-poll", "1s"},
		work:  history.Workload{Plain: 3, RW: 3, Limit: 2, MinLease: 1000, MaxLease: 3000, PXShare: 0.2, MaxBlock: 300, Pause: 2 * time.Millisecond},
		harms: []harm{cutReplies, cutReplies, cutReplies, killClients}, pause: 100 * time.Millisecond, latency: time.Millisecond,
	},
	{
		name: "duels", about: "duels for names used once: without a message nobody tries for a minute",
		clients: 4, watchdog: time.Minute, args: []string{"--wait-poll", "60s"}, strict: true, drive: func(r *round) { history.Duels(r.Crew) },
	},
	{
		name: "wakeups", about: "duels while subscriptions break, after which everybody tries",
		clients: 4, watchdog: time.Minute, args: []string{"--wait-poll", "60s"}, strict: true,
		harms: []harm{killSubscribers}, pause: 250 * time.Millisecond, drive: func(r *round) { history.Duels(r.Crew) },
	},
	{
		name: "late", about: "holders sleep past their leases and write: fenced writes lose nothing, unfenced ones must",
		clients: 4, watchdog: 400 * time.Millisecond, args: []string{"--wait-poll", "1s"},
		harms: []harm{stopProxy}, pause: 500 * time.Millisecond, drive: func(r *round) { history.LateWriters(r.Crew) }, effects: true,
	},
	{
		name: "told", about: "a proxy is cut off: holders there are told before anybody else gets their locks, and do not forget it",
		proxies: 2, clients: 1, watchdog: 3 * time.Second, args: []string{"--wait-poll", "200ms"}, drive: toldLosses,
	},
	{
		name: "quorum", about: "five nodes with clocks that drift: they stop, forget and are cut off, and no two hold one lock",
		nodes: 5, clients: 4, watchdog: 1500 * time.Millisecond, least: 6 * time.Second, nemeses: 2,
		args: []string{"--wait-poll", "300ms", "--quorum-max-lease", "1500ms", "--quorum-node-timeout", "100ms"},
		work: history.Workload{Plain: 3, RW: 2, Fair: 1, Multi: true, Force: true, Deaths: true, Lapses: true, Unfenced: true,
			MinLease: 200, MaxLease: 1500, PXShare: 0.4, MaxBlock: 600, Pause: 40 * time.Millisecond},
		harms: []harm{stopNode, stopNode, restartNode, resetLink, resetLink, closeLink, dropReplies, swallowLink, slowLink, isolate, stopMajority,
			stopProxy, killProxy},
		pause: 800 * time.Millisecond,
	},
	{
		name: "split", about: "named owners ask at once for locks on three healthy nodes far away: those that fail leave nothing behind",
		proxies: 3, nodes: 3, clients: 3, watchdog: 8 * time.Second, far: true, drive: func(r *round) { history.Splits(r.Crew) },
		args: []string{"--wait-poll", "300ms", "--quorum-max-lease", "8s", "--quorum-node-timeout", "500ms"},
	},
}
