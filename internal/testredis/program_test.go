package testredis

import "testing"

// The version is what a Redis, or a Valkey, says of itself.
func TestParseVersion(t *testing.T) {
	t.Parallel()
	for says, want := range map[string][2]int{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0\n": {7, 0},
		"Redis server v=8.2.3 sha=b5d43ceb:0 malloc=jemalloc-5.3.0 bits=64 build=a4a1616166d42ee6\n": {8, 2},
		"Valkey server v=8.1.8 sha=00000000:1 malloc=libc bits=64 build=7eb4ebc9d7e91f4e\n":          {8, 1},
	} {
		if got, err := parseVersion(says); got != want || err != nil {
			t.Errorf("%q: %v %v", says, got, err)
		}
	}
	for _, says := range []string{"", "redis-server: no such option\n", "Redis server v=unstable\n"} {
		if got, err := parseVersion(says); err == nil {
			t.Errorf("%q: %v", says, got)
		}
	}
}
