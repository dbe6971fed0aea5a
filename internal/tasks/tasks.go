// Package tasks counts goroutines, of which some may begin while somebody waits for the end of all.
package tasks

import "sync"

// Group is goroutines to wait for. Its zero value is an empty one.
//
// A sync.WaitGroup must not be begun anew while somebody waits for it: that is a race, and may panic. A client's last command, whose
// reply was late, does just that when the process ends.
type Group struct {
	mu    sync.Mutex
	under int       // goroutines under way; guarded by mu
	none  sync.Cond // under has come to 0; its L is set by who waits, under mu
}

// Go runs work in a goroutine of the group.
func (g *Group) Go(work func()) {
	g.mu.Lock()
	g.under++
	g.mu.Unlock()
	go g.runTask(work)
}

func (g *Group) runTask(work func()) {
	defer g.endTask()
	work()
}

func (g *Group) endTask() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.under--; g.under == 0 {
		g.none.Broadcast()
	}
}

// Wait waits until no goroutine of the group is under way. What begins later is not waited for.
func (g *Group) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.none.L = &g.mu
	for g.under > 0 {
		g.none.Wait()
	}
}
