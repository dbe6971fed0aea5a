package top

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxyclient"
	"github.com/lockproxy/lockproxy/proto/resp"
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

// ask asks for the statistics, and so many rows of each list.
func ask(p *proxyclient.Client, rows int) (f facts, err error) {
	questions := [][]string{{"LOCKPROXY", "STATS"}}
	for _, l := range lists {
		words := slices.Insert(slices.Clone(l.question), 1, strconv.Itoa(rows))
		questions = append(questions, append([]string{"LOCKPROXY"}, words...))
	}
	said, err := p.Ask(context.Background(), answerTime, questions...)
	if err == nil {
		err = upstream.ErrorIn(said[0].Raw)
	}
	if err != nil {
		return f, err
	}
	f.at, f.stats = time.Now(), readMap(said[0])
	for _, one := range said[1:] {
		all := []record{}
		for _, row := range one.Elems {
			all = append(all, readMap(row))
		}
		f.rows, f.fails = append(f.rows, all), append(f.fails, upstream.ErrorIn(one.Raw))
	}
	return f, nil
}

// readMap reads the fields of a map: names and values in turn.
func readMap(m resp.Reply) record {
	r := record{}
	for i := 1; i < len(m.Elems); i += 2 {
		r[string(m.Elems[i-1].Text)] = string(m.Elems[i].Text)
	}
	return r
}
