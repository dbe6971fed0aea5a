package quorum

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// garbage accepts connections and answers every read with something else.
func garbage(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	answers := []string{"+OK\r\n", "$-5\r\n", "*3\r\n:1\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "$99999999999\r\n", "\x00\xff\r\n", ":x\r\n",
		"$99\r\n# Replication\r\nrole:master\r\n", "*1000000000\r\n", "-ERR no\r\n", "%2\r\n+a\r\n"}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // the test is over
			}
			go func() {
				defer c.Close()
				for b := make([]byte, 4096); ; {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := c.Write([]byte(answers[rand.N(len(answers))])); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// Four of seven nodes are well: one by a name, one by TLS with a user of its own, one that has the data, too. The others answer
// garbage, or nothing, or refuse what they are asked. Locks are as quick as with all of them, and INFO says what is wrong.
func TestQuorumOddNodes(t *testing.T) {
	t.Parallel()
	ca := testredis.NewAuthority(t)
	cert, key := ca.Issue("localhost")
	tlsPort := testredis.FreePort(t)
	withTLS := testredis.Start(t, "--tls-port", fmt.Sprint(tlsPort), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File,
		"--tls-auth-clients", "no")
	withTLS.Do(t, "ACL", "SETUSER", "locks", "on", ">p w/d", "~*", "&*", "+@all", "-config")
	data, plain, third := testredis.Start(t, "--requirepass", "s3:cret"), testredis.Start(t), testredis.Start(t)
	refusing := testredis.Start(t)
	refusing.Do(t, "ACL", "SETUSER", "default", "-info")
	hole := testredis.NewProxy(t, third.Addr())
	hole.BlackHole()
	nodes := []string{data.URL(), fmt.Sprint("redis://localhost:", plain.Port()), fmt.Sprintf("rediss://locks:p%%20w%%2Fd@localhost:%d", tlsPort), third.URL(),
		"redis://" + garbage(t), "redis://" + hole.Addr(), refusing.URL()}
	flags := slices.Clone(quorumTimes)
	for _, n := range nodes {
		flags = append(flags, "--quorum", n)
	}
	p := harness.StartProxy(t, data.URL(), append(flags, "--upstream-tls-ca", ca.File)...)
	w := harness.Dial(t, p.Addr())
	wants(t, w, "+OK", "AUTH", "s3:cret")
	for i := range 4 {
		harness.Eventually(t, fmt.Sprint("node ", i, " counts"), func() bool { return harness.NodeState(w, i, "state") == "up" })
	}
	promptly(t, "20 locks", func() {
		for i := range 20 {
			key := fmt.Sprint("k", i)
			wants(t, w, ":", "LOCK", key, "FENCE")
			wants(t, w, ":1", "RENEW", key)
			wants(t, w, ":1", "UNLOCK", key)
		}
	})
	wants(t, w, "+OK", "LOCK", "k")
	for i, s := range []*testredis.Server{data, plain, withTLS, third} {
		if s.Do(t, "EXISTS", "k").(int64) != 1 {
			t.Errorf("it is not on node %d", i)
		}
	}
	for i, want := range map[int]string{4: "", 5: "", 6: "NOPERM"} {
		harness.Eventually(t, fmt.Sprint("node ", i, " is down, and why: ", want), func() bool {
			said := harness.NodeState(w, i, "error")
			return harness.NodeState(w, i, "state") == "down" && said != "" && strings.Contains(said, want)
		})
	}
	if info := w.Do("INFO", "lockproxy"); strings.Contains(info, "cret") || strings.Contains(info, "w/d") || strings.Contains(info, "%2F") {
		t.Error("passwords are shown")
	}
	harness.Eventually(t, "LOCKINFO has four up and three down", func() bool {
		states := ""
		for _, n := range harness.Objects(t, harness.Object(t, harness.Decode(t, w.Do("LOCKINFO", "k")))["nodes"]) {
			states += fmt.Sprint(n["state"], " ")
		}
		return states == "up up up up down down down "
	})
	time.Sleep(9 * time.Second) // more than a lease
	wants(t, w, ":1", "UNLOCK", "k")
	third.Stop()
	wants(t, w, "-NOQUORUM 3 of 7 nodes answered, 4 are needed", "LOCK", "k")
	third.Cont()
	harness.Eventually(t, "four are enough", func() bool { return w.Do("LOCK", "k") == "+OK\r\n" })
}

// A replica is no node, nor is a second name of one that counts already. One that becomes a replica refuses.
func TestQuorumReplicaAndTwoNames(t *testing.T) {
	t.Parallel()
	nodes := harness.StartNodes(t, 4)
	nodes[3].Do(t, "REPLICAOF", "127.0.0.1", nodes[0].Port())
	flags := slices.Clone(quorumTimes)
	for _, n := range nodes {
		flags = append(flags, "--quorum", n.URL())
	}
	flags = append(flags, "--quorum", fmt.Sprint("redis://localhost:", nodes[1].Port()))
	p := harness.StartProxy(t, testredis.Start(t).URL(), flags...)
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "three count", func() bool { return w.Do("LOCK", "k") == "+OK\r\n" })
	harness.Eventually(t, "one of the two names does not count", func() bool {
		return harness.NodeState(w, 4, "state") == "down" && strings.HasPrefix(harness.NodeState(w, 4, "error"), "upstream unavailable: it is the same server as redis://127.0.0.1:") ||
			harness.NodeState(w, 1, "state") == "down" && strings.HasPrefix(harness.NodeState(w, 1, "error"), "upstream unavailable: it is the same server as redis://localhost:")
	})
	harness.Eventually(t, "a replica does not count", func() bool { // a busy machine may have had its last look end otherwise
		return harness.NodeState(w, 3, "state") == "down" && strings.Contains(harness.NodeState(w, 3, "error"), `its role is "slave": it must be a master`)
	})
	wants(t, w, ":1", "UNLOCK", "k")
	nodes[2].Do(t, "REPLICAOF", "127.0.0.1", nodes[0].Port())
	wants(t, w, "-NOQUORUM 2 of 5 nodes answered, 3 are needed: ", "LOCK", "k")
	harness.Eventually(t, "it is known why", func() bool {
		got := harness.NodeState(w, 2, "error")
		return strings.HasPrefix(got, "READONLY") || strings.Contains(got, "must be a master") || strings.Contains(got, "UNBLOCKED")
	})
	nodes[3].Do(t, "REPLICAOF", "NO", "ONE")
	harness.Eventually(t, "a master counts", func() bool { return w.Do("LOCK", "k") == "+OK\r\n" })
}
