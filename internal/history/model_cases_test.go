package history

import (
	"strconv"
	"strings"
	"testing"
)

func TestModel(t *testing.T) {
	judge(t, []verdict{
		{"re-entry", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 LOCK k -> OK
			4 5 #1 UNLOCK k -> 0
			6 7 #1 UNLOCK k -> 1
			8 9 #1 UNLOCK k -> NOTHELD`},
		{"counted twice", true, `
			0 1 #1 LOCK k -> OK
			4 5 #1 UNLOCK k -> 0`},
		{"counted once for twice", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 LOCK k -> OK
			4 5 #1 UNLOCK k -> 1`},
		{"an owner that says it again", false, `
			0 1 a LOCK k -> OK
			2 3 a LOCK k -> OK
			4 5 a UNLOCK k -> 1
			6 7 a UNLOCK k -> NOTHELD`},
		{"an owner that gives back twice what it has once", true, `
			0 1 a LOCK k PX 900 -> OK
			2 3 a LOCK k PX 900 -> OK
			4 5 a UNLOCK k -> 1
			6 7 a UNLOCK k -> 1`},
		{"an owner that is told of a loss", true, `
			0 1 a LOCK k PX 5 -> OK
			20 21 a UNLOCK k -> LOCKLOST`},
		{"an owner whose lease was over", false, `
			0 1 a LOCK k PX 5 -> OK
			20 21 a UNLOCK k -> NOTHELD`},
		{"an owner that takes two leases at once, of which the second is forced to end before the first begins", false, `
			0 400 a MULTILOCK k PX 1000 -> OK
			1 2 a LOCK k PX 3000 -> OK
			200 300 b UNLOCK k FORCE -> 1
			600 700 b LOCK k BLOCK 100 -> nil
			1450 1451 a UNLOCK k ALL -> NOTHELD`},
		{"an owner that takes two leases at once, of which the longer one counts", true, `
			0 400 a MULTILOCK k PX 1000 -> OK
			1 2 a LOCK k PX 3000 -> OK
			1450 1451 a UNLOCK k ALL -> NOTHELD`},
		{"an owner whose later lease is not over", true, `
			0 1 a MULTILOCK k PX 1000 -> OK
			2 3 a LOCK k PX 3000 -> OK
			1450 1451 a UNLOCK k ALL -> NOTHELD`},
		{"an owner that is counted", true, `
			0 1 a LOCK k -> OK
			2 3 a LOCK k -> OK
			4 5 a UNLOCK k -> 0`},
		{"an owner that still holds", true, `
			0 1 a LOCK k -> OK
			2 3 a LOCK k -> OK
			4 5 a UNLOCK k -> 1
			6 7 b LOCK k -> nil`},
		{"several at once", true, `
			0 1 a MULTILOCK k -> OK
			2 3 a MULTILOCK k -> OK
			4 5 a MULTIUNLOCK k -> 1
			6 7 b LOCK k -> nil`},
		{"ALL", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 LOCK k -> OK
			4 5 #1 UNLOCK k ALL -> 1
			6 7 b LOCK k -> OK`},
		{"nil while it was held", false, `
			0 1 #1 LOCK k -> OK
			2 5 #2 LOCK k -> nil
			4 6 #1 UNLOCK k -> 1`},
		{"nil although it was free", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k -> 1
			4 5 #2 LOCK k -> nil`},
		{"nil although the lease was over", true, `
			0 1 #1 LOCK k PX 100 -> OK
			200 210 #2 LOCK k -> nil`},
		{"an owner whose LOCK was granted too late, and gives it back before its proxy does", false, `
			0 1 a RLOCK k PX 204 -> OK
			2 221 a RLOCK k PX 204 -> nil
			222 223 a UNLOCK k -> 1`},
		{"and one that had not held it before", false, `
			2 221 a LOCK k PX 204 -> nil
			222 223 a UNLOCK k -> 1
			224 225 b LOCK k -> OK`},
		{"an owner whose LOCK was refused in time, and gives it back", true, `
			0 1 a RLOCK k PX 204 -> OK
			2 190 b WLOCK k PX 204 -> nil
			191 192 b UNLOCK k -> 1`},
		{"nil to a re-entry whose lease is over before the answer", false, `
			0 1 #1 LOCK k PX 100 -> OK
			90 140 #1 LOCK k PX 100 -> nil`},
		{"nil to a LOCK after the lease", true, `
			0 1 #1 LOCK k PX 100 -> OK
			190 240 #1 LOCK k PX 100 -> nil`},
		{"nil although only others read", true, `
			0 1 #1 RLOCK k -> OK
			2 3 #2 RLOCK k -> nil`},
		{"nil while one with an unknown outcome may hold it", false, `
			0 1 a LOCK k -> ?
			200 210 #2 LOCK k -> nil`},
		{"granted past a holder", true, `
			0 1 #1 LOCK k -> OK
			4 5 #2 LOCK k -> OK
			8 9 #1 UNLOCK k -> 1`},
		{"unlocked by somebody else", true, `
			0 1 #1 LOCK k -> OK
			4 5 #2 UNLOCK k -> 1
			6 7 #1 UNLOCK k -> LOCKLOST`},
		{"an UNLOCK that did not reach Redis, and a lease that is over", false, `
			0 1 #1 LOCK k PX 5 -> OK
			2 3 #1 UNLOCK k -> ERR
			6 7 #1 UNLOCK k -> NOTHELD`},
		{"an UNLOCK that did not reach Redis, of what was lost already", false, `
			0 1 #1 LOCK k PX 500 -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 UNLOCK k -> ERR
			600 601 #1 UNLOCK k -> NOTHELD`},
		{"an UNLOCK of all that did not reach Redis, said again", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 LOCK k -> OK
			4 5 #1 UNLOCK k ALL -> ERR
			6 7 #2 LOCK k -> nil
			8 9 #1 UNLOCK k -> 1
			10 11 #1 UNLOCK k -> NOTHELD`},
		{"an UNLOCK that did not reach Redis, and a LOCK that begins anew", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k -> ERR
			4 5 #1 LOCK k -> OK
			6 7 #1 UNLOCK k -> 1`},
		{"an UNLOCK of a reader that did not reach Redis, and a WLOCK that begins anew", false, `
			0 1 #1 RLOCK k -> OK
			2 3 #1 UNLOCK k READ -> ERR
			4 5 #1 WLOCK k -> OK
			6 7 #1 UNLOCK k WRITE -> 1
			8 9 a WLOCK k PX 900 -> OK`},
		{"an UNLOCK of a reader that did not reach Redis, and a WLOCK that begins anew beside another reader", true, `
			0 1 #1 RLOCK k -> OK
			0 1 a RLOCK k PX 900 -> OK
			2 3 #1 UNLOCK k READ -> ERR
			4 5 #1 WLOCK k -> OK
			6 7 a UNLOCK k READ -> 1`},
		{"an UNLOCK of a writer that did not reach Redis, and an RLOCK that begins anew", false, `
			0 1 #1 WLOCK k -> OK
			2 3 #1 UNLOCK k WRITE -> ERR
			4 5 #1 RLOCK k -> OK
			6 7 a RLOCK k PX 900 -> OK`},
		{"an UNLOCK of one of two that did not reach Redis", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 LOCK k -> OK
			4 5 #1 UNLOCK k -> ERR
			6 7 #1 UNLOCK k -> 1`},
		{"lost by force", false, `
			0 1 #1 LOCK k -> OK
			4 5 #2 UNLOCK k FORCE -> 1
			6 7 #1 UNLOCK k -> LOCKLOST`},
		{"lost for no reason", true, `
			0 1 #1 LOCK k -> OK
			6 7 #1 UNLOCK k -> LOCKLOST`},
		{"lost by its lease", false, `
			0 1 #1 LOCK k PX 5 -> OK
			6 7 #1 UNLOCK k -> LOCKLOST`},
		{"a loss that is not told", true, `
			0 1 #1 LOCK k PX 5 -> OK
			200 201 #2 LOCK k -> OK
			300 301 #1 UNLOCK k -> NOTHELD`},
		{"given back, and called lost", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k -> 1
			6 7 #1 UNLOCK k -> LOCKLOST`},
		{"an owner's, given back elsewhere and called lost", true, `
			0 1 a LOCK k PX 900 -> OK
			2 3 a UNLOCK k -> 1
			6 7 a UNLOCK k -> LOCKLOST`},
		{"FENCED by a holder", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 FENCED k SET n 1 -> OK`},
		{"FENCED by nobody", true, `
			2 3 #1 FENCED k SET n 1 -> OK`},
		{"RENEW that came after its own lease was over", false, `
			0 1 #1 LOCK k PX 100 -> OK
			2 30 #1 RENEW k PX 20 -> LOCKLOST
			31 32 b LOCK k -> OK`},
		{"LOCKLOST to a LOCK that did nothing", false, `
			0 50 #1 LOCK k BLOCK 273 PX 485 -> OK
			51 3430 #1 LOCK k PX 485 -> LOCKLOST
			530 3437 a LOCK k BLOCK 54 PX 458 -> OK
			3431 3439 #1 LOCK k PX 489 -> nil
			3437 3438 a LOCK k PX 458 -> OK
			3439 3490 a UNLOCK k -> 1
			3439 3470 #1 UNLOCK k -> NOTHELD`},
		{"told of one loss twice", true, `
			0 1 #1 LOCK k -> OK
			4 5 #2 UNLOCK k FORCE -> 1
			6 7 #1 UNLOCK k -> LOCKLOST
			8 9 #1 UNLOCK k -> LOCKLOST`},
		{"told of a loss by a LOCK, and not again", false, `
			0 1 #1 LOCK k -> OK
			4 5 #2 UNLOCK k FORCE -> 1
			6 7 #1 LOCK k -> LOCKLOST
			8 9 #1 LOCK k -> OK
			10 11 #1 UNLOCK k -> 1`},
		{"LOCKLOST to a LOCK while the lease runs", true, `
			0 1 #1 LOCK k PX 20 -> OK
			2 10 #1 LOCK k PX 20 -> LOCKLOST`},
		{"LOCKLOST to a first LOCK", true, `
			2 10 #1 LOCK k PX 20 -> LOCKLOST`},
		{"LOCKLOST to a RENEW while the lease runs", true, `
			0 1 #1 LOCK k PX 100 -> OK
			2 10 #1 RENEW k PX 20 -> LOCKLOST`},
		{"RENEW of nothing", true, `
			2 3 #1 RENEW k -> 1`},
		{"a lease that was renewed to less", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 RENEW k PX 20 -> 1
			40 41 #2 LOCK k -> OK`},
		{"FORCE of nothing", true, `
			2 3 #1 UNLOCK k FORCE -> 1`},
		{"FORCE of something, said to be nothing", true, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 0`},
		{"downgraded", false, `
			0 1 #1 WLOCK k -> OK
			2 3 #1 RLOCK k -> OK
			4 5 #1 UNLOCK k WRITE -> 1
			6 7 #2 RLOCK k -> OK
			8 9 #3 WLOCK k -> nil
			9 10 #1 UNLOCK k READ -> 1`},
		{"a reader with the lease that it had as a writer", false, `
			0 1 #1 WLOCK k PX 5000 -> OK
			2 3 #1 RLOCK k PX 500 -> OK
			4 5 #1 UNLOCK k WRITE -> 1
			3000 3001 #2 WLOCK k -> nil`},
		{"a writer beside a reader", true, `
			0 1 #1 RLOCK k -> OK
			2 3 #2 WLOCK k -> OK`},
		{"an upgrade", false, `
			0 1 #1 RLOCK k -> OK
			2 3 #1 WLOCK k -> DEADLOCK`},
		{"no upgrade", true, `
			2 3 #1 WLOCK k -> DEADLOCK`},
		{"another kind", false, `
			0 1 #1 RLOCK k -> OK
			2 3 #2 LOCK k -> LOCKKIND`},
		{"no other kind", true, `
			0 1 #1 LOCK k -> OK
			2 3 #2 LOCK k -> LOCKKIND`},
		{"hung up", false, `
			0 1 #1 LOCK k -> OK
			2 3 #1 CLOSE -> OK
			4 5 #2 LOCK k -> nil
			6 7 #2 LOCK k -> OK`},
		{"a lease that was joined twice at once: each LOCK moved its end by up to 2 ms", false, `
			0 0 a LOCK k PX 100 -> OK
			1 1 a LOCK k PX 100 -> OK
			2 2 a LOCK k PX 100 -> OK
			105 106 a UNLOCK k -> 1`},
		{"and no further", true, `
			0 0 a LOCK k PX 100 -> OK
			1 1 a LOCK k PX 100 -> OK
			2 2 a LOCK k PX 100 -> OK
			109 110 a UNLOCK k -> 1`},
		{"an unlock of unknown outcome", false, `
			0 1 a LOCK k -> OK
			2 3 a UNLOCK k -> ?
			4 5 b LOCK k -> OK`},
		{"granted before an unlock of unknown outcome was sent", true, `
			0 1 a LOCK k -> OK
			2 3 b LOCK k -> OK
			4 5 a UNLOCK k -> ?`},
	}, func(ops []*Op) []Violation {
		wrong, decided := Legal("k", ops, 10*second, false)
		if !decided {
			t.Error("not decided")
		}
		return wrong
	})
}

// A lost reply is no reason to tell of a loss what was given back.
func TestModelAmongFaults(t *testing.T) {
	judge(t, []verdict{
		{"an owner's, given back elsewhere and called lost after a lost reply", true, `
			0 1 a LOCK k PX 20000 -> OK
			2 3 a UNLOCK k -> 1
			6 9000 a UNLOCK k -> LOCKLOST`},
		{"a connection's, called lost after a lost reply", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k -> 1
			6 9000 #1 UNLOCK k -> LOCKLOST`},
		{"a MULTILOCK that was refused, and could not give back what it had meanwhile", false, `
			0 300 b LOCK k -> ?
			350 400 b UNLOCK k ALL -> 1
			500 900 a MULTILOCK k PX 3000 BLOCK 400 -> nil
			1400 1401 a UNLOCK k ALL -> 1`},
		{"a MULTILOCK that failed, and could not give back what it had", false, `
			500 900 a MULTILOCK k PX 3000 BLOCK 400 -> ERR
			1400 1401 a UNLOCK k ALL -> 1`},
		{"a MULTILOCK that was granted after a LOCK beside it whose outcome is not known", false, `
			0 1 c LOCK k PX 3000 -> OK
			2 400 a MULTILOCK k PX 3000 -> OK
			10 11 a LOCK k PX 3000 -> ?
			300 301 c UNLOCK k -> 1
			410 411 a UNLOCK k ALL -> 1
			420 421 b LOCK k -> OK`},
		{"FENCED of what a connection was told to have lost, and Redis had for a moment longer", false, `
			0 700 #1 LOCK k PX 1100 -> OK
			700 1300 #1 RENEW k -> LOCKLOST
			1301 1302 #1 FENCED k SET n 1 -> OK
			1303 1304 #1 UNLOCK k -> NOTHELD`},
		{"FENCED long after the loss", true, `
			0 700 #1 LOCK k PX 1100 -> OK
			700 1300 #1 RENEW k -> LOCKLOST
			11400 11401 #1 FENCED k SET n 1 -> OK`},
		{"a lease that a new master ends sooner by its clock, as far as can be told", false, `
			0 100 #1 RLOCK k PX 862 -> OK
			110 793 #1 RLOCK k PX 862 -> LOCKLOST`},
		{"a loss long before its lease is over", true, `
			0 100 #1 RLOCK k PX 2862 -> OK
			110 793 #1 RLOCK k PX 2862 -> LOCKLOST`},
		{"an UNLOCK that did not reach Redis, and a lease that was over before Redis ended it", false, `
			0 565 #1 LOCK k PX 726 -> OK
			570 580 #1 UNLOCK k -> ERR
			900 901 #1 UNLOCK k -> NOTHELD
			960 970 #2 LOCK k -> nil`},
		{"an UNLOCK that did not reach Redis, and a lease that was over long ago", true, `
			0 565 #1 LOCK k PX 726 -> OK
			570 580 #1 UNLOCK k -> ERR
			900 901 #1 UNLOCK k -> NOTHELD
			2300 2301 #2 LOCK k -> nil`},
		{"a MULTIUNLOCK that gave back some before Redis refused the rest", false, `
			0 1 a MULTILOCK k PX 3000 -> OK
			2 3 a MULTIUNLOCK k -> ERR
			4 5 a UNLOCK k ALL -> NOTHELD`},
		{"an UNLOCK that was refused", true, `
			0 1 a LOCK k PX 3000 -> OK
			2 3 a UNLOCK k -> ERR
			4 5 a UNLOCK k ALL -> NOTHELD`},
		{"FORCE between a grant without a reply and the second request", false, `
			0 50 a RLOCK k PX 3000 -> OK
			20 21 b UNLOCK k FORCE -> 1
			60 61 a UNLOCK k READ -> 1`},
		{"FORCE of what nobody asked for", true, `
			0 1 b UNLOCK k FORCE -> 1
			20 50 a RLOCK k PX 3000 -> OK
			60 61 a UNLOCK k READ -> 1`},
		{"a RENEW that was done and over, and what its owner has had since", false, `
			0 1 a LOCK k PX 1000 -> OK
			2 2000 a RENEW k PX 500 -> NOTHELD
			2001 2002 a LOCK k PX 5000 -> OK
			3000 3001 b LOCK k -> nil`},
		{"a connection's, whose proxy could not renew it", false, `
			0 1 #1 LOCK k -> OK
			20000 20001 #2 LOCK k -> OK
			20002 20003 #1 UNLOCK k -> LOCKLOST`},
		{"an UNLOCK that was done, whose reply was lost, and that tells of the loss of the other side", false, `
			0 1 #1 WLOCK k -> OK
			2 3 #1 RLOCK k PX 4000 -> OK
			4 9500 #1 UNLOCK k WRITE -> LOCKLOST
			10 11 a RLOCK k PX 900 -> OK
			12 13 a UNLOCK k READ -> 1
			9501 9502 #1 UNLOCK k READ -> NOTHELD`},
		{"a LOCK whose BLOCK ran out before the reply to its grant came, and that is given back then", false, `
			0 200 #1 LOCK k BLOCK 200 -> nil
			100 101 a LOCK k -> nil
			400 401 b LOCK k -> nil`},
		{"refused long after a LOCK whose BLOCK ran out", true, `
			0 200 #1 LOCK k BLOCK 200 -> nil
			3000 3001 b LOCK k -> nil`},
		{"an UNLOCK whose reply was lost, and that tells of the loss of what another one has had meanwhile", true, `
			0 1 #1 WLOCK k -> OK
			4 5000 #1 UNLOCK k WRITE -> LOCKLOST`},
	}, func(ops []*Op) []Violation {
		wrong, _ := Legal("k", ops, 10*second, true)
		return wrong
	})
}

// What is under way does not hide what is wrong before, and the culprit is the last one told.
func TestCulprit(t *testing.T) {
	ops := made(t, `
		0 1 #1 LOCK k -> OK
		2 90 #3 LOCK k BLOCK 100 -> OK
		4 5 #2 UNLOCK k -> 1
		6 7 #1 UNLOCK k -> 1`)
	wrong, _ := Legal("k", ops, 10*second, false)
	if len(wrong) != 1 || wrong[0].Ops[len(wrong[0].Ops)-1] != ops[2] {
		t.Error(wrong)
	}
}

// madeOp reads one line of made.
func madeOp(t *testing.T, line string) *Op {
	t.Helper()
	call, reply, found := strings.Cut(strings.TrimSpace(line), " -> ")
	words := strings.Fields(call)
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || !found {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	o := &Op{Call: number(words[0]) * ms, Return: number(words[1]) * ms, Owner: words[2], Verb: words[3], Block: -1}
	o.Named = o.Owner[0] != '#'
	o.Side = map[string]Side{"RLOCK": Read, "WLOCK": Write}[o.Verb]
	for i := 4; i < len(words); i++ {
		switch words[i] {
		case "PX":
			i++
			o.Lease = number(words[i])
		case "BLOCK":
			i++
			o.Block = number(words[i])
		case "FENCE":
			o.Fence = true
		case "ALL":
			o.All = true
		case "FORCE":
			o.Force = true
		case "READ":
			o.Side = Read
		case "WRITE":
			o.Side = Write
		case "SET":
			o.Words = words[i:]
			i = len(words)
		default:
			o.Keys = []string{words[i]}
		}
	}
	switch reply {
	case "OK":
		o.Outcome = OK
	case "nil":
		o.Outcome = Null
	case "?":
		o.Outcome = Unknown
	case "NOTHELD", "LOCKLOST", "LOCKKIND", "DEADLOCK", "NOQUORUM", "ERR":
		o.Outcome, o.Code = Failed, reply
	default:
		o.Outcome, o.N = OK, number(reply)
	}
	return o
}
