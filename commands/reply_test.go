package commands

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A client that has closed its half of the connection alone reads how its wait ended, as ioredis does after disconnect().
func TestAWaitOfOneWhoHasClosed(t *testing.T) {
	said := string(appendFailure(nil, 2, fmt.Errorf("waiting: %w", context.Canceled)))
	if !strings.HasPrefix(said, "-UNBLOCKED ") {
		t.Errorf("%q", said)
	}
}
