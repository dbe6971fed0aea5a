package downstream

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// What is kept comes out as it came, in pieces of any size, and is counted while it is there.
func TestBacklog(t *testing.T) {
	t.Parallel()
	all := newBudget(1<<20, "a bound", slog.New(slog.DiscardHandler), new(telemetry.Gauge), new(telemetry.Counter))
	b := backlog{account: Account{of: all}}
	random := rand.New(rand.NewPCG(1, 2))
	var came, left bytes.Buffer
	for range 10_000 {
		if random.IntN(3) > 0 {
			space := b.space()
			n := random.IntN(min(len(space), 10_000) + 1) // nothing, too
			for i := range space[:n] {
				space[i] = byte(random.Int())
			}
			came.Write(space[:n])
			b.filled(n)
		}
		p := make([]byte, random.IntN(10_000))
		for !b.empty() && random.IntN(3) > 0 {
			left.Write(p[:b.takeOut(p)])
		}
		if all.total() != counted(b.room) {
			t.Fatalf("%d bytes are counted of %d", all.total(), b.room)
		}
	}
	for p := make([]byte, 1000); !b.empty(); {
		left.Write(p[:b.takeOut(p)])
	}
	if !bytes.Equal(came.Bytes(), left.Bytes()) || all.total() != 0 {
		t.Errorf("%d bytes came, %d went, %d are counted", came.Len(), left.Len(), all.total())
	}
	for b.space() != nil {
		b.filled(len(b.space()))
	}
	if n := all.total(); n > all.limit || n < all.limit-nextPiece {
		t.Errorf("%d bytes are kept at the most", n)
	}
	if b.empties(); all.total() != 0 || !b.empty() {
		t.Error("something is left")
	}
}
