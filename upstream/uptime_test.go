package upstream

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A server that has not been up for long enough is sent nothing, on either way, and after a restart it is not for as long again.
func TestMinUptime(t *testing.T) {
	s := testredis.Start(t, "--requirepass", "pw")
	target, err := ParseTarget(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	target.MinUptime = time.Second
	c := NewControl(target, ControlOptions{Logger: slog.New(slog.DiscardHandler)})
	defer c.Close()
	const script = "redis.call('INCR', KEYS[1]) return {1}"
	ask := func() error {
		client, err := c.Client(0)
		if err != nil {
			t.Fatal(err)
		}
		_, asked := c.Ints(0, "0000000000000000000000000000000000000000", script, []string{"n"}, nil)
		if err := client.Do(context.Background(), client.B().Incr().Key("n").Build()).Error(); (err == nil) != (asked == nil) {
			return errors.Join(err, asked)
		}
		return asked
	}
	for range 2 {
		var young *YoungError
		var notSent *NotSentError
		err := ask()
		for end := time.Now().Add(20 * time.Second); !errors.As(err, &young) && time.Now().Before(end); err = ask() {
			time.Sleep(10 * time.Millisecond) // it is told of the restart
		}
		if young == nil || young.Min != time.Second || !errors.As(err, &notSent) {
			t.Fatalf("%T %v", err, err)
		}
		if n := s.Do(t, "EXISTS", "n").(int64); n != 0 {
			t.Fatal("something was sent")
		}
		for end := time.Now().Add(20 * time.Second); ask() != nil; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never old enough")
			}
		}
		s.Restart()
	}
	target.Password = "wrong"
	wrong := NewControl(target, ControlOptions{Logger: slog.New(slog.DiscardHandler)})
	defer wrong.Close()
	if _, err := wrong.Ints(0, "x", script, []string{"n"}, nil); err == nil {
		t.Error("without its password")
	}
}
