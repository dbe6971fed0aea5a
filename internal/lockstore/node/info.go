package node

import (
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// Info is the script that says what there is of a lock, and about so many of its owners.
func Info(db int, key string, most int) Call {
	queue, token := lockstore.OwnKeys(key)
	return Call{DB: db, Script: scripts.Info, Keys: []string{key, token, queue},
		Args: []string{lockstore.ReadPrefix(key), strconv.Itoa(most)}}
}

// ParseInfo takes its reply apart.
func ParseInfo(reply rueidis.RedisMessage, err error) (lockstore.Info, error) {
	if err != nil {
		return lockstore.Info{}, err
	}
	parts, err := reply.ToArray()
	if err != nil {
		return lockstore.Info{}, err
	}
	if len(parts) < 5 {
		return lockstore.Info{}, errOdd(scripts.Info.Name)
	}
	text := make([]string, len(parts))
	for i := range parts {
		if text[i], err = parts[i].ToString(); err != nil {
			n, _ := parts[i].AsInt64()
			text[i] = strconv.FormatInt(n, 10)
		}
	}
	in := lockstore.Info{Kind: "other"}
	in.TTL, _ = strconv.ParseInt(text[1], 10, 64)
	if token, err := strconv.ParseUint(text[2], 10, 53); err == nil { // else it is no token: see scripts/token.lua
		in.Token, in.Fenced = int64(token), true
	}
	in.Queue, _ = strconv.ParseInt(text[3], 10, 64)
	switch text[0] {
	case lockstore.Limit.String():
		in.Kind = text[0]
		in.Unread, _ = strconv.ParseInt(text[4], 10, 64)
		for i := 5; i+1 < len(text); i += 2 {
			in.Owners = append(in.Owners, lockstore.Owned{Owner: lockstore.PermitOf(text[i]), Kind: lockstore.Limit, Holds: 1, Field: text[i]})
		}
	case "none":
		in.Kind = "none"
	case "hash":
		in.Kind, in.Owners = ownersIn(text[5:])
		in.Unread, _ = strconv.ParseInt(text[4], 10, 64)
	}
	return in, nil
}

// ownersIn takes the hash apart.
func ownersIn(fields []string) (kind string, owners []lockstore.Owned) {
	kind = lockstore.Plain.String()
	rw := false
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "mode" {
			kind, rw = fields[i+1], true
		}
	}
	for i := 0; i+1 < len(fields); i += 2 {
		n, err := strconv.ParseInt(fields[i+1], 10, 64)
		switch {
		case fields[i] == "mode":
			continue
		case err != nil:
			return "other", nil
		}
		o := lockstore.Owned{Owner: fields[i], Holds: n, Field: fields[i]}
		if rw {
			o.Owner, o.Kind = lockstore.OwnerOf(fields[i])
			o.Field = lockstore.ReaderOf(fields[i])
		}
		owners = append(owners, o)
	}
	return kind, owners
}

// Look is the script that says what there is of one owner's holds.
func Look(id lockstore.ID) Call {
	return Call{DB: id.DB, Script: scripts.Look, Keys: []string{id.Key},
		Args: []string{id.Owner, id.Reader(), lockstore.ReadPrefix(id.Key), id.As(lockstore.Limit).Field()}, Shape: Shape{Least: 4}}
}

// Seen reads what that script has returned.
func Seen(out []int64) lockstore.Seen {
	return lockstore.Seen{Plain: out[0] == 1, Writes: out[1] == 1, Reads: out[2] == 1, Place: out[3] == 1}
}
