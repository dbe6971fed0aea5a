package resp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestRequests(t *testing.T) {
	for _, q := range requests {
		t.Run(q.name, func(t *testing.T) {
			for _, size := range []int{4096, 1 << 20, 100, len(standIn)} {
				for name, chop := range map[string]func() int{
					"whole": every(1 << 20), "bytes": every(1), "sevens": every(7), "any": anySize(1),
				} {
					got, err := drain(NewReader(&chopped{q.in, chop}, Limits{}), size)
					if got != q.out || errText(err) != q.err {
						t.Fatalf("read into %d, %s: got %.200q, %v; want %.200q, %s", size, name, got, err, q.out, q.err)
					}
				}
			}
		})
	}
}

func TestErrorIsStickyAndHoldsNothing(t *testing.T) {
	r := NewReader(&chopped{ping + "*x\r\n" + ping, every(1 << 20)}, Limits{})
	_, first := drain(r, 4096)
	if n, again := r.Read(make([]byte, 10)); n != 0 || again != first || errText(again) == "" {
		t.Fatal(n, again, first)
	}
	if err := r.ReadAhead(100); err != first {
		t.Fatal(err)
	}
	if r.held != nil || r.ready != nil || r.Unfinished() != 0 {
		t.Fatal("bytes kept after the end")
	}
	if first.Error() != "Protocol error: invalid multibulk length" {
		t.Fatal(first)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		in     string
		err    string
	}{
		{"args fit", Limits{Args: 2}, mb("a", "b"), ""},
		{"args", Limits{Args: 2}, mb("a", "b", "c"), "invalid multibulk length"},
		{"inline args", Limits{Args: 2}, "a b c\r\n", "invalid multibulk length"},
		{"bulk fits", Limits{Bulk: 4}, mb("abcd"), ""},
		{"bulk", Limits{Bulk: 4}, mb("abcde"), "invalid bulk length"},
		{"inline fits", Limits{Inline: 5}, "abcd\r\n", ""},
		{"inline", Limits{Inline: 5}, "abcde\r\n", "too big inline request"},
		{"command fits", Limits{Command: 21}, mb("ab", "cde"), ""},
		{"command", Limits{Command: 20}, mb("ab", "cde"), "too big command"},
		{"inline command", Limits{Command: 20}, "ab cde\n", "too big command"},
		{"command by its announcement", Limits{Command: 1000}, "*2\r\n$4\r\nECHO\r\n$2000\r\n", "too big command"},
		{"unauthenticated fits", UnauthenticatedLimits, mb(strings.Split("1234567890", "")...) + mb(strings.Repeat("x", 16384)), ""},
		{"unauthenticated args", UnauthenticatedLimits, "*11\r\n", "unauthenticated multibulk length"},
		{"unauthenticated bulk", UnauthenticatedLimits, "*1\r\n$16385\r\n", "unauthenticated bulk length"},
		{"unauthenticated, worse", UnauthenticatedLimits, "*2147483648\r\n", "invalid multibulk length"},
		{"unauthenticated, bulk worse", UnauthenticatedLimits, "*1\r\n$536870913\r\n", "invalid bulk length"},
		{"unauthenticated inline", UnauthenticatedLimits, "1 2 3 4 5 6 7 8 9 10 11\r\n", "unauthenticated multibulk length"},
		{"inline bulk", Limits{Bulk: 4}, "ECHO abcde\r\n", "invalid bulk length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, chop := range []int{1, 1 << 20} {
				got, err := drain(NewReader(&chopped{ping + c.in, every(chop)}, c.limits), 4096)
				if errText(err) != c.err || !strings.HasPrefix(got, ping) || (c.err != "") != (got == ping) {
					t.Errorf("got %q, %v; want %q", got, err, c.err)
				}
			}
		})
	}
}

func TestLimitsChangeBetweenPipelinedCommands(t *testing.T) {
	auth, big := mb("AUTH", "secret"), mb(strings.Split("abcdefghijkl", "")...)
	r := NewReader(&chopped{auth + big, every(1 << 20)}, UnauthenticatedLimits)
	p := make([]byte, 4096)
	if n, err := r.Read(p); string(p[:n]) != auth || err != nil {
		t.Fatalf("%q, %v", p[:n], err)
	}
	r.SetLimits(Limits{})
	if n, err := r.Read(p); string(p[:n]) != big || err != nil {
		t.Fatalf("%q, %v", p[:n], err)
	}
}

func TestUnfinished(t *testing.T) {
	r := NewReader(&chopped{ping + "*2\r\n$4\r\nEC", every(1 << 20)}, Limits{})
	p := make([]byte, 4096)
	if n, err := r.Read(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := r.Read(p); string(p[:n]) != ping || err != nil || r.Unfinished() != 10 {
		t.Fatal(n, err, r.Unfinished())
	}
	if _, err := r.Read(p); err != io.EOF || r.Unfinished() != 10 {
		t.Fatal(err, r.Unfinished())
	}
}

func TestIdleReaderHoldsNothing(t *testing.T) {
	for _, in := range []string{echoes(1000), "ECHO a\r\n" + echoes(1000), "*0\r\n" + mb("ECHO", strings.Repeat("x", 100000))} {
		r := NewReader(&chopped{in, anySize(2)}, Limits{})
		if _, err := drain(r, 4096); err != io.EOF || r.held != nil || r.ready != nil || r.Unfinished() != 0 {
			t.Fatal(err, len(r.held), len(r.ready), r.Unfinished())
		}
	}
}

func TestSourceErrors(t *testing.T) {
	// Data and an error in one read: the data first.
	got, err := drain(NewReader(iotest.DataErrReader(strings.NewReader(ping)), Limits{}), 4096)
	if got != ping || err != io.EOF {
		t.Fatal(got, err)
	}
	// A timeout ends one Read and loses nothing.
	r := NewReader(iotest.TimeoutReader(&chopped{ping[:5] + ping[5:], every(5)}), Limits{})
	p := make([]byte, 4096)
	if n, err := r.Read(p); n != 0 || err != iotest.ErrTimeout {
		t.Fatal(n, err)
	}
	// iotest's timeout does not say it is one; a socket's does.
	r = NewReader(&script{steps: []any{ping[:3], os.ErrDeadlineExceeded, ping[3:]}}, Limits{})
	if n, err := r.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || r.Unfinished() != 3 {
		t.Fatal(n, err)
	}
	if n, err := r.Read(p); string(p[:n]) != ping || err != nil {
		t.Fatalf("%q %v", p[:n], err)
	}
	if _, err := r.Read(p); err != io.EOF {
		t.Fatal(err)
	}
	if _, err := NewReader(&script{steps: slicesOf("", 200)}, Limits{}).Read(p); err != io.ErrNoProgress {
		t.Fatal(err)
	}
}

// script is a source that does one step a Read, then returns io.EOF.
type script struct{ steps []any }

func (s *script) Read(p []byte) (int, error) {
	if len(s.steps) == 0 {
		return 0, io.EOF
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	if err, ok := step.(error); ok {
		return 0, err
	}
	return copy(p, step.(string)), nil
}

func slicesOf(s string, n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestReadAhead(t *testing.T) {
	cut := errors.New("cut")
	r := NewReader(&script{steps: []any{
		ping + "*2\r\n$4", os.ErrDeadlineExceeded, "\r\nECHO\r\n$1\r\n", "x\r\nPI", "NG\r\n*1\r\n$4\r\nPI", cut, "never",
	}}, Limits{})
	p := make([]byte, 4096)
	if n, err := r.Read(p); string(p[:n]) != ping || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []error{os.ErrDeadlineExceeded, nil, nil, nil, cut, cut} {
		if err := r.ReadAhead(1000); err != want {
			t.Fatal(i, err)
		}
	}
	if err := r.ReadAhead(10); err != ErrReadAheadFull {
		t.Fatal(err)
	}
	got, err := drain(r, 4096)
	if want := echoes(1) + ping; got != want || err != cut {
		t.Fatalf("%q %v", got, err)
	}
}

func TestReadAheadBounds(t *testing.T) {
	r := NewReader(smallSets(), Limits{})
	for {
		if err := r.ReadAhead(10000); err != nil {
			if err != ErrReadAheadFull || r.Unfinished() != 10000 {
				t.Fatal(err, r.Unfinished())
			}
			break
		}
	}
	p := make([]byte, 4096)
	var got strings.Builder
	for got.Len() < 50000 {
		n, err := r.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(p[:n])
	}
	one := mb("SET", "key:000000000042", "value-of-16bytes")
	if want := strings.Repeat(one, 1+got.Len()/len(one)); !strings.HasPrefix(want, got.String()) {
		t.Fatal("order lost")
	}
}

func TestReadAheadWithoutDataHoldsNothing(t *testing.T) {
	r := NewReader(&script{steps: []any{os.ErrDeadlineExceeded}}, Limits{})
	if err := r.ReadAhead(1000); err != os.ErrDeadlineExceeded || r.held != nil {
		t.Fatal(err, cap(r.held))
	}
}

// allocated returns the bytes that run allocates.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestNoMemoryForAnnouncements(t *testing.T) {
	p := make([]byte, 4096)
	for _, in := range []string{"*1\r\n$536870912\r\n", "*1048576\r\n$1\r\nx\r\n"} {
		r := NewReader(&chopped{ping + in, every(1 << 20)}, Limits{})
		if n := allocated(func() { _, _ = r.Read(p); _, _ = r.Read(p) }); n > 4096 {
			t.Errorf("%q: %d bytes allocated", in, n)
		}
	}
}

// A rescan of the unfinished command from its start at each read would take
// hours here.
func TestTimeIsLinear(t *testing.T) {
	for name, in := range map[string]string{
		"args":   mb(strings.Split(strings.Repeat("a", 200_000), "")...),
		"inline": strings.Repeat("ECHO x\n", 100_000),
		"none":   strings.Repeat("*0\r\n", 300_000),
		"mixed":  strings.Repeat(ping+"ECHO x\n*-1\r\n", 50_000),
	} {
		for _, chop := range []int{1, 1 << 20} {
			for _, size := range []int{4096, 1 << 22} {
				t.Run(fmt.Sprintf("%s/%d/%d", name, chop, size), func(t *testing.T) {
					began := time.Now()
					r := NewReader(&chopped{in, every(chop)}, Limits{})
					p := make([]byte, size)
					for {
						if _, err := r.Read(p); err != nil {
							break
						}
					}
					if took := time.Since(began); took > time.Minute {
						t.Error(took)
					}
				})
			}
		}
	}
}
