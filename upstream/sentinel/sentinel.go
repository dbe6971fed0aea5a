package sentinel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/checked"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	sentinelEvery   = time.Second            // how often each Sentinel is asked
	sentinelGap     = 20 * time.Millisecond  // the shortest time between two questions
	sentinelTimeout = time.Second            // for an answer, and for a connection
	sentinelPause   = 200 * time.Millisecond // the shortest time between two questions after an error
	sentinelBuffer  = 4 << 10
	sentinelRing    = 6
)

var errNoSuchMaster = errors.New("no master of that name")

// sentinel asks one Sentinel, and listens to it.
type sentinel struct {
	f      *Follower
	index  int
	addr   string
	wakeup chan struct{} // one slot: ask now
}

func (s *sentinel) wake() { retry.Wake(s.wakeup) }

// follow asks the Sentinel, and listens to it, until the follower is closed.
func (s *sentinel) follow() {
	defer s.f.running.Done()
	client, err := rueidis.NewClient(s.options()) // the client comes even with an error, and connects later
	if client == nil {
		s.f.report(s.index, statement{err: err})
		return
	}
	defer client.Close()
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { s.listen(client) })
	for {
		v := s.askMaster(client)
		if s.f.ctx.Err() != nil {
			return
		}
		s.f.report(s.index, v)
		gap := sentinelGap
		if v.err != nil {
			gap = sentinelPause
		}
		retry.Sleep(s.f.ctx, gap, nil)
		retry.Sleep(s.f.ctx, sentinelEvery, s.wakeup)
	}
}

// askMaster sends both questions together, so that they are answered at one moment. During a failover GET-MASTER-ADDR-BY-NAME
// already names the new master; MASTER does not, but it has the epoch.
func (s *sentinel) askMaster(client rueidis.Client) statement {
	ctx, cancel := context.WithTimeout(s.f.ctx, sentinelTimeout)
	defer cancel()
	name := s.f.target.Sentinels.Master
	replies := client.DoMulti(ctx,
		client.B().SentinelGetMasterAddrByName().Master(name).Build(),
		client.B().Arbitrary("SENTINEL", "MASTER", name).Build())
	addr, err := replies[0].AsStrSlice()
	switch {
	case rueidis.IsRedisNil(err):
		return statement{err: errNoSuchMaster}
	case err != nil:
		return statement{err: err}
	case len(addr) != 2:
		return statement{err: errors.New("protocol violation by a Sentinel: GET-MASTER-ADDR-BY-NAME")}
	}
	fields, err := replies[1].AsStrMap()
	if err != nil {
		return statement{err: err}
	}
	epoch, err := strconv.ParseInt(fields["config-epoch"], 10, 64)
	if err != nil {
		return statement{err: errors.New("protocol violation by a Sentinel: MASTER has no config-epoch")}
	}
	return statement{masterAddress: masterAddress{net.JoinHostPort(addr[0], addr[1]), epoch}}
}

// listen subscribes to announcements of changes. After each one all Sentinels are asked: only their answers count.
func (s *sentinel) listen(client rueidis.Client) {
	for s.f.ctx.Err() == nil {
		ctx := rueidis.WithOnSubscriptionHook(s.f.ctx, func(rueidis.PubSubSubscription) { s.wake() })
		changes := client.B().Subscribe().Channel("+switch-master", "+promoted-slave").Build()
		_ = client.Receive(ctx, changes, s.onMessage)
		retry.Sleep(s.f.ctx, sentinelPause, nil) // ask reports what is wrong with this Sentinel
	}
}

// onMessage gets the announcement of a new master's address, or of a replica that has just become a master.
func (s *sentinel) onMessage(msg rueidis.PubSubMessage) {
	name := s.f.target.Sentinels.Master
	if strings.HasPrefix(msg.Message, name+" ") || strings.Contains(msg.Message, " @ "+name+" ") {
		s.f.askAgain()
	}
}

func (s *sentinel) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:         []string{s.addr},
		AuthCredentialsFn:   s.f.target.Sentinels.Account().Credentials,
		ClientName:          "lockproxy",
		ClientSetInfo:       rueidis.DisableClientSetInfo,
		DialCtxFn:           s.dial,
		Dialer:              net.Dialer{Timeout: sentinelTimeout, KeepAlive: sentinelTimeout / 2},
		ConnWriteTimeout:    2 * sentinelTimeout,
		ForceSingleClient:   true,
		DisableRetry:        true,
		DisableCache:        true,
		AlwaysPipelining:    true,
		PipelineMultiplex:   -1,
		RingScaleEachConn:   sentinelRing,
		ReadBufferEachConn:  sentinelBuffer,
		WriteBufferEachConn: sentinelBuffer,
	}
}

func (s *sentinel) dial(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	conn, err := upstream.Dial(s.f.ctx, s.f.at(s.addr), sentinelTimeout)
	if err != nil {
		return nil, err
	}
	return checked.New(conn), nil
}
