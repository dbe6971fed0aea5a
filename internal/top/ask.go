package top

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

// query is what is asked for: the rows of a list, or who holds and waits for one lock.
type query struct {
	list *list
	rows int
	all  bool   // of all proxies, if the list tells of them
	lock record // a row about it; nil: a list is asked for
}

// everywhere says that all proxies are asked.
func (q *query) everywhere() bool { return q.all && q.list.all }

// commands are what the proxy is asked.
func (q *query) commands() (all [][]string) {
	list := func(words ...string) []string {
		if words = append(words, strconv.Itoa(q.rows)); q.everywhere() {
			words = append(words, "ALL")
		}
		return words
	}
	all = [][]string{{"LOCKPROXY", "STATS"}}
	if q.everywhere() {
		all = append(all, []string{"LOCKPROXY", "PROXIES", "-1"})
	}
	if q.lock != nil {
		all = append(all, []string{"SELECT", q.lock["db"]}, []string{"LOCKINFO", q.lock["key"]}, list("LOCKPROXY", "LOCKS"))
	}
	return append(all, list(slices.Clone(q.list.question)...))
}

// facts are what the proxy told at one time: of itself, and the rows of one list.
type facts struct {
	at    time.Time
	stats record
	rows  []record
	lock  string // of one lock: how it is
}

// answerTime bounds a question, the connection that it may need included.
const answerTime = 5 * time.Second

// helloTime is for the answer to HELLO, which a Redis that hangs never gives: the next question is not to wait for long.
const helloTime = 2 * time.Second

// proxy is the lockproxy that is asked. It connects when it is asked, and again after each failure.
type proxy struct {
	target upstream.Target
	// One connection is for lists, the other one for locks: while Redis hangs, LOCKINFO has no answer, and nobody gets
	// another connection for lists.
	lists, locks connection
}

// connection is nil before it is made, and after a failure.
type connection struct{ rueidis.Client }

func (c *connection) end() {
	if c.Client != nil {
		c.Close()
		c.Client = nil
	}
}

func (p *proxy) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{p.target.Addr}, Username: p.target.User, Password: p.target.Password, SelectDB: p.target.DB,
		ClientName: "lockproxy-top", ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		ConnWriteTimeout: helloTime,
		Dialer:           net.Dialer{KeepAlive: -1}, // rueidis sends no PING, which a Redis that hangs does not answer
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := upstream.Dial(ctx, p.target, answerTime)
			if err != nil {
				return nil, err
			}
			return checked.New(conn), nil
		},
	}
}

// ask puts a query.
func (p *proxy) ask(ctx context.Context, q *query) (f facts, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	client := &p.lists
	if q.lock != nil {
		client = &p.locks
	}
	if client.Client == nil {
		if client.Client, err = rueidis.NewClient(p.options()); err != nil {
			client.end()
			// Rueidis begins with HELLO, and the proxy closes whoever says that while Redis is away.
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the proxy closed the connection: its Redis may be away; try LOCKPROXY at redis-cli (%w)", err)
			}
			return f, err
		}
	}
	var commands []rueidis.Completed
	for _, words := range q.commands() {
		commands = append(commands, client.B().Arbitrary(words...).Build())
	}
	said := client.DoMulti(ctx, commands...)
	f.at = time.Now()
	err = f.read(q, said)
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		client.end()
	}
	return f, err
}

// read reads the answers to a query.
func (f *facts) read(q *query, said []rueidis.RedisResult) error {
	stats, err := said[0].ToMessage()
	if err != nil {
		return err
	}
	rows, err := said[len(said)-1].ToArray()
	if err != nil {
		return err
	}
	f.stats, f.rows = readMap(stats), readRows(rows, q.list.read)
	at := map[string]string{} // the addresses of proxies, by their ids
	if said = said[1:]; q.everywhere() {
		proxies, _ := said[0].ToArray()
		for _, one := range readRows(proxies, readMap) {
			at[one["id"]] = one["addr"]
		}
		said = said[1:]
	}
	if q.lock != nil {
		err = f.readLock(q.lock, said)
	}
	for _, r := range f.rows {
		r["proxy"] = cmp.Or(at[r["proxy"]], r["proxy"])
	}
	return err
}

func readRows(all []rueidis.RedisMessage, read func(rueidis.RedisMessage) record) (rows []record) {
	for _, m := range all {
		rows = append(rows, read(m))
	}
	return rows
}

// readMap reads the fields of a map. Those of a map within it have its name before theirs; lists are left out.
func readMap(m rueidis.RedisMessage) record {
	r := record{}
	r.readInto("", m)
	return r
}

func (r record) readInto(before string, m rueidis.RedisMessage) {
	fields, _ := m.AsMap()
	for name, value := range fields {
		if value.IsMap() {
			r.readInto(before+name+"-", value)
		} else {
			r[before+name] = readText(value)
		}
	}
}

// readText reads text, or a number as text; "": it is neither.
func readText(m rueidis.RedisMessage) string {
	if n, err := m.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	text, _ := m.ToString()
	return text
}
