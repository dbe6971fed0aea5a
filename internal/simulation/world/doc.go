// Package world is Redis servers and the wires to them, in one process, for tests in a bubble of testing/synctest: hours of leases,
// outages and clock jumps pass in milliseconds. The proxies' code runs on it as it is, rueidis included.
//
//	synctest.Test(t, func(t *testing.T) {
//		w := world.New(1) // the seed: of how long messages take
//		t.Cleanup(w.Close)
//		n := w.NewNode("10.0.0.1:6379")
//		target := upstream.Target{Network: "tcp", Addr: n.Addr(), Dialer: w.Proxy("one")}
//		… // upstream.NewControl(target, …), lock.New(sharded.Single(…), …), and close both before the test ends
//		time.Sleep(time.Hour)            // everything happens that is due in an hour
//		w.Proxy("one").Link(n.Addr()).Cut() // Delay, Swallow, Drop, Heal; n.Stop, Cont, Kill, Restart, Jump
//		n.Do(t, "PTTL", "k")             // past the wires, at once
//	})
//
// NewCluster makes nodes that share the slots, for cluster.Open; independent nodes are those of a quorum. A Proxy is one process: each
// has links of its own to the nodes.
//
// A Node is miniredis, whose clock and keys' ages are set from the bubble's clock, plus the node's own offset, before each command;
// what Redis does otherwise than miniredis, and lockproxy needs, is in commands.go and pubsub.go. Commands that wait (BLPOP) are
// refused. There are no replicas, and no process that saves.
//
// # What a test must know of bubbles
//
// Time goes on only when all goroutines of the bubble wait durably: for channels, timers, sync.Cond, sync.WaitGroup, all made in the
// bubble. Who waits for a sync.Mutex, a socket or a process outside does not, and if that lasts the test hangs. So nobody may hold a
// mutex while waiting for a reply or a pause (that goes for sync.Once, too), and no pool outside may hand timers or channels from one bubble
// to the next. t.Parallel, t.Run and Deadline do not work inside. All goroutines must have ended when the test's function and its
// cleanups have; a sync.Cond or channel that nobody signals ends the test with "deadlock".
//
// # Order
//
// One goroutine, World's own, has everything happen outside the proxies: at one instant after the other, those of one instant in the
// order of their content. What a proxy writes on a connection in one instant is one message. So what happens depends on the seed and on
// what the proxies do in each instant, and hardly on the scheduler.
package world
