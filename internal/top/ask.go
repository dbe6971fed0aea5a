package top

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/checked"
	"github.com/lockproxy/lockproxy/upstream"
)

// record is one thing that the proxy tells of, by the names it gives.
type record map[string]string

// number is a field that is a whole number; 0 when it is none.
func (r record) number(name string) int64 {
	n, _ := strconv.ParseInt(r[name], 10, 64)
	return n
}

// span is a field that is a time in ms.
func (r record) span(name string) time.Duration {
	return time.Duration(r.number(name)) * time.Millisecond
}

// facts are what the proxy told at one time: of itself, and the rows of the lists, each of which may have failed.
type facts struct {
	at    time.Time
	stats record
	rows  [][]record
	fails []error
}

// answerTime bounds a question, the connection that it may need included.
const answerTime = 5 * time.Second

// proxy is the lockproxy that is asked. It connects when it is asked, and again after each failure.
type proxy struct {
	target upstream.Target
	client rueidis.Client // nil: there is none
}

func (p *proxy) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{p.target.Addr}, Username: p.target.User, Password: p.target.Password, SelectDB: p.target.DB,
		ClientName: "lockproxy-top", ForceSingleClient: true, DisableCache: true, DisableRetry: true, ConnWriteTimeout: answerTime,
		AlwaysRESP2: true, // HELLO needs Redis, which may be away
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := upstream.Dial(ctx, p.target, answerTime)
			if err != nil {
				return nil, err
			}
			return checked.New(conn), nil
		},
	}
}

// ask asks for the statistics, and so many rows of each list.
func (p *proxy) ask(ctx context.Context, rows int) (f facts, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if p.client == nil {
		client, err := rueidis.NewClient(p.options())
		if err != nil {
			return f, err
		}
		p.client = client
	}
	questions := []rueidis.Completed{p.client.B().Arbitrary("LOCKPROXY", "STATS").Build()}
	for _, l := range lists {
		words := slices.Insert(slices.Clone(l.question), 1, strconv.Itoa(rows))
		questions = append(questions, p.client.B().Arbitrary("LOCKPROXY").Args(words...).Build())
	}
	said := p.client.DoMulti(ctx, questions...)
	f.at = time.Now()
	stats, err := said[0].ToMessage()
	if err != nil {
		if _, refused := rueidis.IsRedisErr(err); !refused {
			p.client.Close()
			p.client = nil
		}
		return f, err
	}
	f.stats = readMap(stats)
	for _, one := range said[1:] {
		all, err := one.ToArray()
		f.rows, f.fails = append(f.rows, readRows(all)), append(f.fails, err)
	}
	return f, nil
}

func readRows(all []rueidis.RedisMessage) (rows []record) {
	for _, m := range all {
		rows = append(rows, readMap(m))
	}
	return rows
}

// readMap reads the fields of a map that are texts and numbers.
func readMap(m rueidis.RedisMessage) record {
	r := record{}
	fields, _ := m.AsMap()
	for name, value := range fields {
		if n, err := value.ToInt64(); err == nil {
			r[name] = strconv.FormatInt(n, 10)
		} else if text, err := value.ToString(); err == nil {
			r[name] = text
		}
	}
	return r
}
