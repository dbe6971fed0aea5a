package lock

import "testing"

// What Redisson's hashes say of who holds what; - stands for a field that is not there.
func TestHolds(t *testing.T) {
	one := []byte("1")
	for _, c := range []struct {
		name             string
		mode             string
		own, write       []byte
		any, read, wrote string // yes, no, or kind: LOCKKIND
	}{
		{"nobody's, or another's plain lock", "-", nil, nil, "no", "no", "no"},
		{"a plain lock of ours", "-", one, nil, "yes", "kind", "kind"},
		{"we read", "read", one, nil, "yes", "yes", "no"},
		{"others read", "read", nil, nil, "no", "no", "no"},
		{"we write", "write", nil, one, "yes", "no", "yes"},
		{"we write and read", "write", one, one, "yes", "yes", "yes"},
		{"another writes", "write", nil, nil, "no", "no", "no"},
		{"a writer's field in a lock that is only read", "read", nil, one, "no", "no", "no"},
	} {
		values := [][]byte{[]byte(c.mode), c.own, c.write}
		if c.mode == "-" {
			values[0] = nil
		}
		for side, want := range map[Kind]string{Plain: c.any, Read: c.read, Write: c.wrote} {
			got := "no"
			switch holds, err := (HoldRequest{Key: "k", Side: side}).Holds(values); {
			case err != nil && err.Error() == "LOCKKIND 'k' holds a lock of another kind":
				got = "kind"
			case err != nil:
				got = err.Error()
			case holds:
				got = "yes"
			}
			if got != want {
				t.Errorf("%s, side %d: %s, want %s", c.name, side, got, want)
			}
		}
	}
}
