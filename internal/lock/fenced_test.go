package lock

import "testing"

// What Redisson's hashes say of who holds what; - stands for a field that is not there.
func TestHolds(t *testing.T) {
	one := []byte("1")
	for _, c := range []struct {
		name                 string
		mode                 string
		reads, writes, plain []byte // as which the hash has the owner
		any, read, wrote     string // yes, no, or kind: LOCKKIND
	}{
		{"nobody's, or another's plain lock", "-", nil, nil, nil, "no", "no", "no"},
		{"a plain lock of ours", "-", nil, nil, one, "yes", "kind", "kind"},
		{"a plain lock of ours, whose field is the same as a reader", "-", one, nil, one, "yes", "kind", "kind"},
		{"a plain lock of an owner whose name is our field as a reader", "-", one, nil, nil, "no", "no", "no"},
		{"a plain lock of an owner whose name is our field as a writer", "-", nil, one, nil, "no", "no", "no"},
		{"we read", "read", one, nil, nil, "yes", "yes", "no"},
		{"we read, in the field of a plain lock", "read", one, nil, one, "yes", "yes", "no"},
		{"a reader whose field is our name reads", "read", nil, nil, one, "no", "no", "no"},
		{"others read", "read", nil, nil, nil, "no", "no", "no"},
		{"we write", "write", nil, one, nil, "yes", "no", "yes"},
		{"we write and read", "write", one, one, one, "yes", "yes", "yes"},
		{"another writes", "write", nil, nil, one, "no", "no", "no"},
		{"a writer's field in a lock that is only read", "read", nil, one, nil, "no", "no", "no"},
	} {
		values := [][]byte{[]byte(c.mode), c.reads, c.writes, c.plain}
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
