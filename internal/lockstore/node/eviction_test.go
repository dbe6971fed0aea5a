package node

import "testing"

func TestEvicting(t *testing.T) {
	t.Parallel()
	for memory, want := range map[string]string{
		"# Memory\r\nused_memory:1\r\nmaxmemory:0\r\nmaxmemory_human:0B\r\nmaxmemory_policy:allkeys-lru\r\n": "",
		"# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:noeviction\r\n":                                       "",
		"# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-ttl\r\n":                                     "volatile-ttl",
		"# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n":                                      "allkeys-lru",
		"": "",
	} {
		if got := evicting(memory); got != want {
			t.Errorf("%q: %q, want %q", memory, got, want)
		}
	}
}
