// Command redsync is redsync by remote control, as ../java is Redisson: each line of standard input is "id, client, thread, command,
// arguments", parted by tabs, and each line of standard output is "id, answer", or "id, !error". At the end of the input the program ends.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// user is a program that uses redsync as its examples do, and that extends its locks each third of their time, since redsync does not.
type user struct {
	out   sync.Mutex
	mu    sync.Mutex
	locks *redsync.Redsync
	lease time.Duration
	held  map[string]*redsync.Mutex
	lost  map[string]time.Time // when the program heard that a lock could not be extended, or was over
}

func main() {
	u := &user{held: map[string]*redsync.Mutex{}, lost: map[string]time.Time{}}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		go u.answer(strings.Split(lines.Text(), "\t"))
	}
}

func (u *user) answer(words []string) {
	text, err := u.run(words[3], words[4:])
	if err != nil {
		text = "!" + err.Error()
	}
	u.out.Lock()
	defer u.out.Unlock()
	fmt.Printf("%s\t%s\n", words[0], strings.Join(strings.Fields(text), " "))
}

func (u *user) run(command string, args []string) (string, error) {
	if command == "connect" { // address, mode, lease in ms
		ms, err := strconv.Atoi(args[2])
		u.lease = time.Duration(ms) * time.Millisecond
		u.locks = redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: args[0], ReadTimeout: u.lease / 6, MaxRetries: -1, ContextTimeoutEnabled: true})))
		return "OK", err
	}
	name := args[1]
	u.mu.Lock()
	m, lost := u.held[name], u.lost[name]
	u.mu.Unlock()
	switch command {
	case "lock.lock":
		m = u.locks.NewMutex(name, redsync.WithExpiry(u.lease), redsync.WithTries(1<<30)) // its pauses are its own: 50 to 250 ms
		if err := m.Lock(); err != nil {
			return "", err
		}
		u.mu.Lock()
		u.held[name] = m
		u.mu.Unlock()
		go u.extend(name, m)
		return "true", nil
	case "lock.unlock":
		u.mu.Lock()
		delete(u.held, name)
		u.mu.Unlock()
		if held, err := m.Unlock(); !held || err != nil {
			return "", fmt.Errorf("not held: %w", errors.Join(err))
		}
		return "true", nil
	case "lock.told": // ms since 1970; 0: it was not
		if lost.IsZero() {
			return "0", nil
		}
		return strconv.FormatInt(lost.UnixMilli(), 10), nil
	}
	return "", errors.New(command)
}

// extend keeps a lock until it is given back. When Redis says that it is gone, or does not answer until the lock's time is over, it is lost.
func (u *user) extend(name string, m *redsync.Mutex) {
	for pause := u.lease / 3; ; {
		time.Sleep(pause)
		u.mu.Lock()
		given := u.held[name] != m
		u.mu.Unlock()
		if given {
			return
		}
		ctx, cancel := context.WithDeadline(context.Background(), m.Until())
		held, err := m.ExtendContext(ctx)
		cancel()
		if held && err == nil {
			pause = u.lease / 3
			continue
		}
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrExtendFailed) || time.Now().After(m.Until()) {
			u.mu.Lock()
			u.lost[name] = time.Now()
			u.mu.Unlock()
			return
		}
		pause = 100 * time.Millisecond
	}
}
