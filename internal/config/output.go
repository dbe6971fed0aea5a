package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OutputLimit is one class of client-output-buffer-limit: a client is closed above Hard bytes, and after so long above
// Soft. 0 is no limit.
type OutputLimit struct {
	Hard, Soft int
	For        time.Duration
}

const outputFields = 4 // class, hard limit, soft limit, seconds

// outputLimits reads Redis' client-output-buffer-limit, one class or several; those not named stay.
func outputLimits(c *Config, v string) error {
	fields := strings.FieldsFunc(v, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
	if len(fields)%outputFields != 0 {
		return fmt.Errorf("%q is not class, hard limit, soft limit, seconds, as in: pubsub 32mb 8mb 60", v)
	}
	for f := range slices.Chunk(fields, outputFields) {
		field := map[string]*OutputLimit{"normal": &c.Limits.NormalOutput, "pubsub": &c.Limits.PubSubOutput}[strings.ToLower(f[0])]
		if field == nil {
			return fmt.Errorf("%q is not one of normal, pubsub", f[0])
		}
		hard, err := parseSize(f[1])
		if err != nil {
			return err
		}
		soft, err := parseSize(f[2])
		if err != nil {
			return err
		}
		seconds, err := strconv.ParseUint(f[3], 10, 31)
		if err != nil {
			return fmt.Errorf("%q is not a number of seconds", f[3])
		}
		*field = OutputLimit{hard, soft, time.Duration(seconds) * time.Second}
	}
	return nil
}
