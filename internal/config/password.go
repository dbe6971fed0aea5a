package config

import (
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

// passwordFaults are those of files with passwords: each is for a user that has no other.
func (c Config) passwordFaults() []error {
	target := c.Upstream.URL.Target()
	password := target.Password
	if ct, sharded := c.Upstream.URL.Cluster(); sharded {
		password = ct.Node.Password
	}
	own, user, ownFile := "", "", c.Upstream.SentinelPasswordFile
	if s := target.Sentinels; s != nil {
		own, user = s.Password, s.User
	}
	inNodes := slices.ContainsFunc(c.Quorum.Nodes, func(node upstream.URL) bool { return node.Target().Password != "" })
	return faultsOf(
		rule{c.Upstream.PasswordFile != "" && c.Upstream.URL.Embedded(), "upstream-password-file: does nothing without an upstream"},
		rule{c.Upstream.PasswordFile != "" && password != "", "upstream-password-file: the upstream's URL has a password, too"},
		rule{ownFile != "" && target.Sentinels == nil, "sentinel-password-file: does nothing without Sentinels"},
		rule{ownFile != "" && own != "", "sentinel-password-file: the upstream's URL has a sentinel-password, too"},
		rule{user != "" && own == "" && ownFile == "", "upstream: sentinel-user needs a sentinel-password or a sentinel-password-file"},
		rule{c.Quorum.PasswordFile != "" && len(c.Quorum.Nodes) == 0, "quorum-password-file: does nothing without quorum"},
		rule{c.Quorum.PasswordFile != "" && inNodes, "quorum-password-file: a node's URL has a password, too"},
	)
}
