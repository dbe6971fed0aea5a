package history

import "testing"

// A failover may lose what was acknowledged before it, and nothing else: times are around a lapse from 100 to 200 ms.
func TestLapses(t *testing.T) {
	lapse := Lapse{From: 100 * ms, To: 200 * ms}
	cases := []verdict{
		{"a lock that is lost by the failover", false, `
			0 1 #1 LOCK k -> OK
			150 151 #2 LOCK k -> OK
			210 211 #1 UNLOCK k -> LOCKLOST`},
		{"one that the former master gives meanwhile", false, `
			110 111 #1 LOCK k -> OK
			150 151 #2 LOCK k -> OK`},
		{"two hold it before the failover", true, `
			0 1 #1 LOCK k -> OK
			50 51 #2 LOCK k -> OK
			60 61 #1 UNLOCK k -> 1`},
		{"two are told after it that they hold it", true, `
			0 1 #1 LOCK k -> OK
			150 151 #2 LOCK k -> OK
			210 211 #2 RENEW k -> 1
			220 221 #1 UNLOCK k -> 1`},
		{"two hold it that were granted after it", true, `
			201 202 #1 LOCK k -> OK
			210 211 #2 LOCK k -> OK`},
	}
	judge(t, cases, func(ops []*Op) []Violation { return Intervals("k", ops, second, lapse) })
	judge(t, []verdict{
		{"what comes after the failover is not searched", false, `
			0 1 #1 LOCK k -> OK
			210 211 #2 LOCK k -> OK
			220 221 #1 UNLOCK k -> 1`},
		{"what came before it is", true, `
			0 1 #1 LOCK k -> OK
			50 51 #2 LOCK k -> OK`},
		{"and so are keys that are used after it", true, `
			201 202 #1 LOCK k -> OK
			210 211 #2 LOCK k -> OK`},
	}, func(ops []*Op) []Violation {
		wrong, _ := Legal("k", ops, 10*second, true, lapse)
		return wrong
	})
	judge(t, []verdict{
		{"a FORCE that is undone", false, `
			0 1 #1 LOCK k -> OK
			90 91 #2 UNLOCK k FORCE -> 1
			210 211 #1 RENEW k -> 1`},
		{"a FORCE long after it", true, `
			0 1 #1 LOCK k -> OK
			300 301 #2 UNLOCK k FORCE -> 1
			310 311 #1 RENEW k -> 1`},
	}, func(ops []*Op) []Violation { return Forced("k", ops, false, lapse) })
}

// Whether a failover may have undone a write.
func TestTouched(t *testing.T) {
	lapses := []Lapse{{From: 10 * second, To: 12 * second}}
	for _, c := range []struct {
		call, reply int64
		want        bool
	}{{1, 2, false}, {9500, 9501, true}, {11000, 11001, true}, {12001, 12002, false}} {
		if got := Touched(lapses, []*Op{{Call: c.call * ms, Return: c.reply * ms}}); got != c.want {
			t.Errorf("from %d to %d ms: %v", c.call, c.reply, got)
		}
	}
}

// A lapse is about some keys.
func TestLapsesOf(t *testing.T) {
	r := NewRecorder()
	r.Lapse(Lapse{From: 1, To: 2, Of: func(key string) bool { return key == "a" }})
	r.Lapse(Lapse{From: 3, To: 4})
	if a, b := len(r.Lapses("a")), len(r.Lapses("b")); a != 2 || b != 1 {
		t.Errorf("%d of a, %d of b", a, b)
	}
}
