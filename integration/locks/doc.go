// Package locks tests the lock verbs as clients meet them, beside Redisson's own scripts and through redis-cli, on one Redis.
package locks
