package page

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lockproxy/lockproxy/internal/webserver"
)

// answerTime is for a whole answer.
const answerTime = 30 * time.Second

// Listen opens an address and serves the page there, until Close. A page that anybody may see is for loopback only.
func (p *Page) Listen(ctx context.Context, sockets net.ListenConfig, address string, secure *tls.Config) error {
	listener, err := sockets.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); p.guard.openToAll() && (!ok || !at.IP.IsLoopback()) {
		return errors.Join(fmt.Errorf("%s is not loopback: others may see this page with a token or a certificate only", listener.Addr()), listener.Close())
	}
	p.server = webserver.New(webserver.Options{
		Name: "the page for operators", Handler: p.Handler(), WriteTimeout: answerTime, Log: p.Log,
		MaxHeaderBytes: 32 << 10, // a name of a lock may be 4 KiB, each byte as %xx
	})
	p.server.Start(listener, secure)
	return nil
}

// Unlisten leaves the address to another process. Who looks at the page goes on doing so until Close.
func (p *Page) Unlisten() { p.server.Unlisten() }

// closeTime is for what is being answered when the page ends.
const closeTime = time.Second

// Close ends the page in a moment.
func (p *Page) Close() {
	if p.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = p.server.Shutdown(ctx) // what took too long is cut
	}
	p.health.mu.Lock()
	p.health.over = true
	p.health.mu.Unlock()
	p.parts.Wait()
}
