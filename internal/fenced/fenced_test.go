package fenced

import "testing"

// Should somebody have given a lock the field that none has, what EXEC ran is not run again.
func TestFencedGuardReply(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"*2\r\n*1\r\n$1\r\nx\r\n:7\r\n": ":7\r\n", "*2\r\n-WRONGTYPE x\r\n*1\r\n:7\r\n": "*1\r\n:7\r\n", "*-1\r\n": "", "_\r\n": "", "-EXECABORT x\r\n": "",
	} {
		if got, ran := guardReply([]byte(answer)); string(got) != want || ran != (want != "") {
			t.Errorf("%q: %q", answer, got)
		}
	}
}
