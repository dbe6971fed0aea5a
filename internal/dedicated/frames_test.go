package dedicated

import "testing"

// Only what Redis says of slots, and with nothing run, is sent again.
func TestIsRedirect(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]bool{
		"-MOVED 1 a:1\r\n": true, "-ASK 1 a:1\r\n": true, "-TRYAGAIN x\r\n": true, "-CLUSTERDOWN x\r\n": true,
		"-CROSSSLOT x\r\n": false, "+MOVED 1 a:1\r\n": false, "$6\r\n-MOVED\r\n": false, "-ERR MOVED \r\n": false, "-ASKING\r\n": false,
	} {
		if got := IsRedirect([]byte(reply)); got != want {
			t.Errorf("%q: %v", reply, got)
		}
	}
}
