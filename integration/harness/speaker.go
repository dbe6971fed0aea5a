package harness

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// stuck is after how long a command that waits for 20 s at most counts as never answered.
const stuck = 75 * time.Second

// Speaker is a connection in RESP3 whose pushes are noted when they come, also while nothing is asked.
type Speaker struct {
	W       *Wire
	replies chan Spoken

	mu   sync.Mutex
	lost map[string]time.Time // keys of which a loss was pushed, and when
}

// Spoken is a reply, and when it came.
type Spoken struct {
	Frame string
	At    time.Time
	Err   error
}

// NewSpeaker connects; login, if any, are a user and a password.
func NewSpeaker(t testing.TB, addr string, login ...string) (*Speaker, error) {
	c, err := Connect(addr)
	if err != nil {
		return nil, err
	}
	s := &Speaker{W: NewWire(t, c), replies: make(chan Spoken, 16), lost: map[string]time.Time{}}
	greeting := []string{"HELLO", "3"}
	if len(login) > 0 {
		greeting = append(append(greeting, "AUTH"), login...)
	}
	for _, hello := range [][]string{greeting, {"CLIENT", "CAPA", "lock-lost"}} {
		if got, err := s.W.Try(hello...); err != nil || IsErrorFrame(got) {
			s.W.Close()
			return nil, errors.Join(err, fmt.Errorf("%s: %q", hello[0], got))
		}
	}
	go s.listen()
	return s, nil
}

func (s *Speaker) listen() {
	for {
		frame, err := s.W.TryRead(time.Hour)
		now := time.Now()
		if strings.HasPrefix(frame, ">") && err == nil {
			if words := strings.Split(frame, "\r\n"); len(words) > 4 && words[2] == "lock-lost" {
				s.mu.Lock()
				s.lost[words[4]] = now
				s.mu.Unlock()
			}
			continue
		}
		s.replies <- Spoken{frame, now, err}
		if err != nil {
			return
		}
	}
}

// Ask sends a command and gives the reply, and when it came.
func (s *Speaker) Ask(args ...string) Spoken {
	if err := s.W.TrySend(args...); err != nil {
		return Spoken{Err: err, At: time.Now()}
	}
	return s.answer(args)
}

func (s *Speaker) answer(args []string) Spoken {
	timer := time.NewTimer(stuck)
	defer timer.Stop()
	select {
	case r := <-s.replies:
		return r
	case <-timer.C:
		return Spoken{Err: fmt.Errorf("%q: %w", args, errStuck), At: time.Now()}
	}
}

var errStuck = errors.New("no answer, ever")

// Told is when the loss of a key was pushed since the last forget; zero: it was not.
func (s *Speaker) Told(key string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[key]
}

func (s *Speaker) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lost, key)
}

// HeardAt is what a goroutine heard, and when.
type HeardAt struct {
	Key string
	Spoken
}

// AskLater sends a command and gives the reply over the channel.
func AskLater(s *Speaker, key string, out chan<- HeardAt, args ...string) {
	out <- HeardAt{key, s.Ask(args...)}
}

// ExpectSpoken is Expect for a Speaker.
func ExpectSpoken(t *testing.T, s *Speaker, want string, args ...string) {
	t.Helper()
	if got := s.Ask(args...); got.Frame != want {
		t.Errorf("%q: %q %v, want %q", args, got.Frame, got.Err, want)
	}
}

// MustSpeak connects, until the end of the test. It tries again, as Dial3 does.
func MustSpeak(t *testing.T, addr string, login ...string) *Speaker {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		s, err := NewSpeaker(t, addr, login...)
		if err == nil {
			t.Cleanup(s.W.Close)
			return s
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
