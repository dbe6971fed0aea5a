package session

import (
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// ask runs one command that changes nothing, as the client's user, and returns Redis' reply as it came. After a
// lost reply the error is a *upstream.NotSentError, as if nothing had been asked, because nothing can have changed.
func (s *Session) ask(words ...string) ([]byte, error) {
	return s.askAt(backend.Place{}, bytesOf(words)...)
}

func (s *Session) askAt(at backend.Place, words ...[]byte) ([]byte, error) {
	if err := s.refused(); client.LogIn(err) {
		return resp.AppendError(nil, noAuth), nil
	} else if err != nil {
		return nil, err
	}
	return s.pipes.Ask(words, at)
}

func bytesOf(words []string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}

// Admitted implements commands.Redis.
func (s *Session) Admitted() error { return s.refused() }

// Ask implements commands.Redis.
func (s *Session) Ask(args ...[]byte) ([]byte, error) { return s.askAt(backend.Place{}, args...) }

// AskSlot implements commands.Redis.
func (s *Session) AskSlot(slot int, args [][]byte) ([]byte, error) {
	return s.askAt(backend.AtSlot(slot), args...)
}

// AskAll implements commands.Redis.
func (s *Session) AskAll(args [][]byte) ([]resp.Reply, error) { return s.pipes.AskAll(args) }

// AskOwn implements commands.Redis.
func (s *Session) AskOwn(args [][]byte) ([]byte, dedicated.Redirect, error) { return s.own.About(args) }

// AskApart implements commands.Redis.
func (s *Session) AskApart(args [][]byte) ([]byte, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	c, _ := s.srv.facts.table.Load().find(args)
	return s.pipes.Ask(args, backend.Apart(c))
}
