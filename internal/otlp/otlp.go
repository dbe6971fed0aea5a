// Package otlp sends spans and figures to an OpenTelemetry collector, by OTLP over HTTP with protobuf, as the
// OTEL_EXPORTER_OTLP_ variables say.
//
// OpenTelemetry's own exporters over HTTP do the same. They take the types of requests from packages that have the
// services of gRPC in them, too, and so bring all of gRPC along: docs/DEPENDENCIES.md says what that costs. On the
// wire a request is nothing but a list of what it carries, as are the messages that OTLP has for files, so those are
// sent here.
package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	// longest is for a batch, all tries together. OpenTelemetry's batchers give it less, unless they are told
	// otherwise.
	longest = time.Minute
	// firstPause and lastPause are those between two tries.
	firstPause = 5 * time.Second
	lastPause  = 30 * time.Second
	// maxAnswer bounds what is read of a collector's answer, and maxSaid what an error says of it.
	maxAnswer = 64 << 10
	maxSaid   = 300
)

// client posts the batches of one signal.
type client struct {
	target

	http   *http.Client
	pauses retry.Backoff
}

// newClient returns a client that has connected to nothing yet. Errors are unusable OTEL_EXPORTER_OTLP_ values.
func newClient(s signal) (*client, error) {
	to, err := s.target()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &client{target: to, http: &http.Client{Transport: transport, Timeout: to.timeout}, pauses: retry.Backoff{First: firstPause, Most: lastPause}}, nil
}

// close lets go of connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// send posts a batch, again where that may help. The error says why it is lost.
func (c *client) send(ctx context.Context, batch proto.Message) error {
	body, err := proto.Marshal(batch)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for pauses := c.pauses; ; {
		again, err := c.post(ctx, body)
		if !again || !retry.Sleep(ctx, pauses.Next(), nil) {
			return err
		}
	}
}

// post tries once. It says whether another try may go well.
func (c *client) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header = c.header.Clone()
	answer, err := c.http.Do(request)
	if err != nil {
		var of net.Error
		return errors.As(err, &of) && of.Timeout(), err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch status := answer.StatusCode; {
	case err != nil:
		return false, err
	case status/100 == 2:
		return false, nil // of what it has refused of the batch a collector tells in its own log, too
	default:
		return tryAgain[status], fmt.Errorf("%s: %s: %q", c.url, answer.Status, said[:min(len(said), maxSaid)])
	}
}

// tryAgain are the answers after which OTLP has the same request sent again.
var tryAgain = map[int]bool{
	http.StatusTooManyRequests: true, http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}
