package page

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// mostConnections is how many there may be at once: who comes later waits.
const mostConnections = 64

// Listen opens an address and serves the page there, until Close. A page that anybody may see is for loopback only.
func (p *Page) Listen(ctx context.Context, sockets net.ListenConfig, address string, secure *tls.Config) error {
	listener, err := sockets.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); p.guard.open() && (!ok || !at.IP.IsLoopback()) {
		return errors.Join(fmt.Errorf("%s is not loopback: others may see this page with a token or a certificate only", listener.Addr()), listener.Close())
	}
	listener = netutil.LimitListener(listener, mostConnections)
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	p.server = &http.Server{
		Addr:              listener.Addr().String(),
		Handler:           p.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second, // a stream has its own
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    32 << 10, // a name of a lock may be 4 KiB, each byte as %xx
		// Otherwise OPTIONS * is answered before anybody is asked who they are.
		DisableGeneralOptionsHandler: true,

		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug), // what strangers do there
	}
	p.parts.Go(p.watch)
	p.parts.Go(func() { p.serve(listener) })
	return nil
}

func (p *Page) serve(listener net.Listener) {
	if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		p.Log.Error("the page for operators is gone", "addr", p.server.Addr, "error", err)
	}
}

// closeTime is for what is being answered when the page ends.
const closeTime = time.Second

// Close ends the page: streams at once, the rest in a moment.
func (p *Page) Close() {
	p.end.Do(func() { close(p.ended) })
	if p.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if p.server.Shutdown(ctx) != nil {
			p.server.Close()
		}
	}
	p.health.mu.Lock()
	p.health.over = true
	p.health.mu.Unlock()
	p.parts.Wait()
}
