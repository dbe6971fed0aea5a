package lockstore

import (
	"testing"
)

// TestNamesAreRedissons has the examples of Redisson's prefixName.
func TestNamesAreRedissons(t *testing.T) {
	for got, want := range map[string]string{
		ChannelOf("orders"): "redisson_lock__channel:{orders}",
		ChannelOf("a{b}c"):  "redisson_lock__channel:a{b}c",
		ChannelOf("a{b"):    "redisson_lock__channel:a{b",
		TokenKey("orders"):  "redisson_lock_token:{orders}",
		QueueKey("orders"):  "redisson_lock_queue:{orders}",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
