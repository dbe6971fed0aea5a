package session

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	lostInMulti   = "-ERR upstream connection lost: the transaction is discarded, EXEC or DISCARD ends it\r\n"
	abortedByLoss = "-EXECABORT Transaction discarded because of: upstream connection lost\r\n"
)

// A transaction that is lost does not cost a holder its connection: each command gets an error, and EXEC says EXECABORT.
func TestHolderLosesTransaction(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	for _, proto := range []string{"2", "3"} {
		for end, want := range map[string]string{"EXEC": abortedByLoss, "DISCARD": "+OK\r\n"} {
			holder.speaks(proto)
			holder.expect("+OK\r\n", "WATCH", "w")
			holder.expect("+OK\r\n", "MULTI")
			holder.expect("+QUEUED\r\n", "SET", "k", "v")
			p.cut(link, holder)
			holder.expect("-ERR MULTI calls can not be nested\r\n", "MULTI")
			for _, args := range [][]string{{"SET", "k", "v"}, {"UNLOCK", "l"}, {"SUBSCRIBE", "c"}, {"BLPOP", "q", "0"}, {"WATCH", "x"}, {"CLIENT", "ID"}, {"EXEC", "x"}, {"NONSENSE"}} {
				holder.expect(lostInMulti, args...)
			}
			holder.expect(want, end)
			p.back()
			holder.expect("-ERR EXEC without MULTI\r\n", "EXEC")
			holder.expect("+OK\r\n", "MULTI") // the watch has ended, too
			holder.expect("+QUEUED\r\n", "EXISTS", "k")
			holder.expect("*1\r\n:0\r\n", "EXEC")
		}
	}
	unlocked(t, holder)
	holder.expect("+OK\r\n", "LOCK", "l")
	holder.expect("+OK\r\n", "MULTI")
	p.cut(link, holder)
	holder.expect("+RESET\r\n", "RESET")
	p.back()
	holder.expect("$-1\r\n", "GET", "k")
}

// What this proxy answers itself is not run behind a MULTI that is lost before its reply has come.
func TestHolderLosesMultiItself(t *testing.T) {
	p, link, server, holder := lostLink(t, nil)
	for _, words := range [][]string{{"SELECT", "5"}, {"LOCK", "m"}, {"FENCED", "l", "SET", "y", "1"}, {"HELLO", "3"}, {"AUTH", "nobody", "x"}, {"CLIENT", "SETNAME", "x"}} {
		link.Filter(func(toServer bool, b []byte) bool {
			if toServer && bytes.Contains(b, []byte("MULTI")) {
				link.Filter(nil)
				link.CutAll()
			}
			return true
		})
		holder.raw(resp.AppendCommand(resp.AppendCommand(nil, "MULTI"), words...))
		holder.want("+OK\r\n")
		holder.want(lostInMulti)
		holder.expect(abortedByLoss, "EXEC")
		p.back()
	}
	holder.expect("*0\r\n", "HGETALL", "none")
	holder.expect("$-1\r\n", "CLIENT", "GETNAME")
	holder.expect("$-1\r\n", "GET", "y")
	holder.expect("+OK\r\n", "SET", "x", "1")
	if got := text(server.Do(t, "GET", "x")); got != "1" {
		t.Errorf("in database 0 x is %q", got)
	}
	if n := server.Do(t, "EXISTS", "m"); n != int64(0) {
		t.Error("m is locked")
	}
}

// A MULTI that cannot be sent begins a transaction that is discarded: what is pipelined behind it is not run by itself.
func TestHolderBeginsTransactionWithoutRedis(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	link.Disable()
	eventually(t, "Redis is away", func() bool { return strings.HasPrefix(holder.do("SET", "k", "v"), "-ERR upstream unavailable") })
	holder.raw([]byte("*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$4\r\nEXEC\r\n"))
	holder.want("+OK\r\n")
	for _, prefix := range []string{"-ERR upstream unavailable", "-EXECABORT Transaction discarded because of: upstream unavailable", "-ERR upstream unavailable"} {
		if got := holder.frame(); !strings.HasPrefix(got, prefix) {
			t.Errorf("got %q, want %s …", got, prefix)
		}
	}
	if got := holder.do("WATCH", "k"); !strings.HasPrefix(got, "-ERR upstream unavailable") {
		t.Errorf("WATCH: %q", got)
	}
	link.Enable()
	p.back()
	holder.expect("+OK\r\n", "MULTI")
	for _, words := range [][]string{{"SET", "k", "v"}, {"EXEC"}} { // of the WATCH that was not to be had
		if got := holder.do(words...); !strings.Contains(got, "upstream unavailable") {
			t.Errorf("%s: %q", words[0], got)
		}
	}
	holder.expect("$-1\r\n", "GET", "k")
}

// Wherever a holder's transaction is cut, all of it has run, or nothing, and the client can tell its state by the replies.
func TestHoldersTransactionsAreWhole(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	var transaction []byte
	for _, args := range [][]string{{"MULTI"}, {"INCR", "a"}, {"INCR", "b"}, {"EXEC"}} {
		transaction = resp.AppendCommand(transaction, args...)
	}
	done, aborted, unknown := 0, 0, 0
	for round := 0; round < 400 && (round < 60 || aborted == 0 || unknown == 0); round++ {
		p.back()
		at := round % len(transaction)
		var cut sync.WaitGroup
		if round%20 == 19 { // for sure between MULTI and EXEC
			at = len(resp.AppendCommand(nil, "MULTI"))
			holder.raw(transaction[:at])
			eventually(t, "Redis has MULTI", func() bool { return p.dedicatedCount() == 1 })
			p.cut(link, holder)
		} else {
			holder.raw(transaction[:at])
			cut.Go(link.CutAll)
		}
		holder.raw(transaction[at:])
		for i := range 4 {
			got := holder.frame()
			switch {
			case i == 0 && got != "+OK\r\n":
				t.Fatalf("round %d, MULTI: %q", round, got)
			case i < 3:
			case strings.HasPrefix(got, "*2\r\n"):
				done++
			case strings.HasPrefix(got, "-EXECABORT "):
				aborted++
			case got == "-"+client.LostLine+"\r\n":
				unknown++
			default:
				t.Fatalf("round %d, EXEC: %q", round, got)
			}
		}
		cut.Wait()
	}
	p.back()
	a, b := holder.do("GET", "a"), holder.do("GET", "b")
	if a != b || done > 0 && a == "$-1\r\n" {
		t.Errorf("a %q, b %q", a, b)
	}
	t.Logf("%d done, %d aborted, %d unknown", done, aborted, unknown)
	if done == 0 || aborted == 0 {
		t.Error("the test is void")
	}
}

// The transaction after a watch that is lost is lost as well, unless the watch is given up before.
func TestHolderLosesWatch(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	for _, proto := range []string{"2", "3"} {
		holder.speaks(proto)
		lose := func() {
			holder.expect("+OK\r\n", "WATCH", "w")
			p.cut(link, holder)
			p.back()
		}
		fails := func(end, want string) {
			t.Helper()
			for _, words := range [][]string{{"MULTI"}, {"SET", "k", "v"}, {end}} { // in one go
				holder.send(words...)
			}
			for _, want := range []string{"+OK\r\n", lostInMulti, want} {
				holder.want(want)
			}
		}
		runs := func() {
			t.Helper()
			holder.expect("+OK\r\n", "MULTI")
			holder.expect("+QUEUED\r\n", "EXISTS", "k")
			holder.expect("*1\r\n:0\r\n", "EXEC")
		}
		lose()
		holder.expect(":0\r\n", "EXISTS", "k")
		holder.expect("-ERR EXEC without MULTI\r\n", "EXEC")
		fails("EXEC", abortedByLoss)
		runs()
		lose()
		holder.expect("+OK\r\n", "UNWATCH")
		runs()
		lose()
		fails("DISCARD", "+OK\r\n")
		runs()
		lose()
		holder.expect("+OK\r\n", "WATCH", "w")
		fails("EXEC", abortedByLoss)
		holder.expect(":1\r\n", "INCR", "w")
		runs() // the other watch has ended, too
		holder.expect(":1\r\n", "DEL", "w")
	}
	unlocked(t, holder)
}
