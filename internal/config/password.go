package config

import "errors"

// passwordFaults are those of files with passwords: each is for a user that has no other.
func (c Config) passwordFaults() (faults []error) {
	target := c.Upstream.URL.Target()
	password := target.Password
	if ct, sharded := c.Upstream.URL.Cluster(); sharded {
		password = ct.Node.Password
	}
	own, user, ownFile := "", "", c.Upstream.SentinelPasswordFile
	if s := target.Sentinels; s != nil {
		own, user = s.Password, s.User
	}
	inNodes := false
	for _, node := range c.Quorum.Nodes {
		inNodes = inNodes || node.Target().Password != ""
	}
	for _, f := range []struct {
		bad   bool
		fault string
	}{
		{c.Upstream.PasswordFile != "" && c.Upstream.URL.Embedded(), "upstream-password-file: does nothing without an upstream"},
		{c.Upstream.PasswordFile != "" && password != "", "upstream-password-file: the upstream's URL has a password, too"},
		{ownFile != "" && target.Sentinels == nil, "sentinel-password-file: does nothing without Sentinels"},
		{ownFile != "" && own != "", "sentinel-password-file: the upstream's URL has a sentinel-password, too"},
		{user != "" && own == "" && ownFile == "", "upstream: sentinel-user needs a sentinel-password or a sentinel-password-file"},
		{c.Quorum.PasswordFile != "" && len(c.Quorum.Nodes) == 0, "quorum-password-file: does nothing without quorum"},
		{c.Quorum.PasswordFile != "" && inNodes, "quorum-password-file: a node's URL has a password, too"},
	} {
		if f.bad {
			faults = append(faults, errors.New(f.fault))
		}
	}
	return faults
}
