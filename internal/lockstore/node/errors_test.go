package node

import "testing"

func TestErrorsOfScriptsReadLikeRedis(t *testing.T) {
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for said, want := range map[string]string{
		wrongType + " script: 149c5a8bf18676fd99e9e6e24923bd64d9b62f94, on @user_script:20.": wrongType,
		"unknown command 'x'": "ERR unknown command 'x'",
		"NOPERM this user has no permissions to run the 'evalsha' command": "NOPERM the service account has no permissions to run the 'evalsha' command",
		"ERR the token script: 12":                             "ERR the token",
		"ERR Protocol error: unauthenticated multibulk length": serviceNoAuth,
		"NOAUTH Authentication required.":                      serviceNoAuth,
	} {
		if got := redisLine(said); got != want {
			t.Errorf("%q: got %q", said, got)
		}
	}
}
