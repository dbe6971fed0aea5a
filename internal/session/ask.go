package session

import (
	"errors"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// ask runs one command that changes nothing on the client's identity and returns Redis' reply as it came. A lost
// reply is no unknown outcome here: the error then is a *upstream.NotSentError, as if nothing had been asked.
func (s *Session) ask(args ...string) ([]byte, error) {
	return s.askRaw(resp.AppendCommand(nil, args...))
}

func (s *Session) askRaw(raw []byte) ([]byte, error) {
	if s.lockedOut() {
		return resp.AppendError(nil, noAuth), nil
	}
	if s.srv.o.Cluster != nil {
		return s.askNodes(raw)
	}
	p, err := s.pipe()
	if err != nil {
		return nil, err
	}
	return s.question(p, raw)
}

func (s *Session) question(p *upstream.Pipe, raw []byte) ([]byte, error) {
	var got gathered
	err := p.Ask(&upstream.Request{Cmds: [][]byte{raw}, Sink: &got, Patient: true}, questionTime)
	var lost *upstream.LostError
	if errors.As(err, &lost) {
		err = &upstream.NotSentError{Cause: lost.Cause}
	}
	if err != nil {
		s.noteTrouble(err)
		return nil, err
	}
	return got, nil
}

// gathered is a sink for one reply.
type gathered []byte

func (g *gathered) Reply(p []byte) { *g = append(*g, p...) }
