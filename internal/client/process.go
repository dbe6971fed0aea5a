package client

import (
	"context"
	"log/slog"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// Process is what the clients of a process share.
type Process struct {
	Context context.Context // ends when the last clients are cut off
	Log     *slog.Logger
	Relearn chan struct{} // what is known of Redis is asked again when something comes here
}

// LearnAgain has Redis be asked again for its commands and settings: another one may have taken its place. It never
// blocks.
func (p *Process) LearnAgain() { retry.Wake(p.Relearn) }
